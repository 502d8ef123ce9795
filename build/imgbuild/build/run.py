"""``imgbuild build``: the pipeline from the plan to tagged images."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from imgbuild.build.context import BuildContext, image_locks
from imgbuild.build.disk_space import full_disk, require_disk_space
from imgbuild.build.gate import pass_gate, remove_leftovers
from imgbuild.build.one_bake import Downloads, bake_images
from imgbuild.build.prepare import prepare
from imgbuild.build.result import BuildResult, FailureScope, scope_of
from imgbuild.build.reuse import keep, releasing, take
from imgbuild.build.targets import phases
from imgbuild.engine.progress import ImagesPlanned, ImageState
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.plan.plan import Action, PlanItem


@dataclass(frozen=True)
class Build:
    """The results of a build, in the order of the images; ``planned`` is how many there should be.

    ``stop`` is an error that ended the whole build, ``full_disk`` a message if the disk is full.
    """

    results: tuple[BuildResult, ...]
    planned: int
    stop: ImgbuildError | OSError | None = None
    full_disk: str = ""

    def failure(self) -> ImgbuildError | OSError | None:
        """Return the error that the command ends with, if any.

        It is a `MachineError` if this machine is the cause of all failures, or its disk is full.
        """
        failed = [one for one in self.results if not one.ok]
        if not failed:
            return self.stop
        lines = [*_reasons(failed), str(self.stop or ""), self.full_disk]
        text = "\n".join(line for line in lines if line)
        of_image = any(one.scope is FailureScope.IMAGE for one in failed)
        of_machine = self.full_disk or self.stop or not of_image
        return MachineError(text) if of_machine else CheckFailedError(text)


def build_images(context: BuildContext) -> Build:
    """Build, test and tag the context's images; what is finished is kept also if the build stops.

    Raises:
        InputError: a lock or a Dockerfile is not the current one.
        MachineError: another imgbuild works on one of the images, or the disk has too little space.

    """
    names = [image.name for image in context.images]
    with image_locks(names, context.host, context.state / "locks"):
        remove_leftovers(context.images, context)
        # Decided again under the locks, since another imgbuild may have finished meanwhile.
        items = take(context)
        to_build = [item.image for item in items if item.action is Action.BUILD]
        if to_build:
            context.require_buildx()
            require_disk_space(to_build, context.engine)
        actions = {item.image.name: str(item.action) for item in items}
        context.display.on_event(ImagesPlanned(actions))
        results: list[BuildResult] = []
        stop = None
        with releasing(items, context), context.display:
            try:
                for result in _work(items, context):
                    results.append(result)
                    state = ImageState(result.name, _word(result), error=result.error)
                    context.display.on_event(state)
            except (ImgbuildError, OSError) as error:
                stop = error
        results.sort(key=lambda one: names.index(one.name))
        keep(results, context)
        failed = any(not one.ok for one in results)
        disk = full_disk(context.engine) if failed else ""
        return Build(tuple(results), len(items), stop, disk)


def _work(items: Sequence[PlanItem], context: BuildContext) -> Iterator[BuildResult]:
    """Yield the result of each image as soon as it is known.

    After a failure the images not yet begun are left out, unless ``keep_going``; after one of the
    engine they are left out in any case.
    """
    for results in _steps(items, context):
        ended = False
        for one in results:
            ended = ended or one.ends_build(keep_going=context.options.keep_going)
            yield one
        if ended:
            return


def _steps(items: Sequence[PlanItem], context: BuildContext) -> Iterator[Iterable[BuildResult]]:
    """Yield the results of each step; the next step begins when they are used up."""
    by_action = {action: [one for one in items if one.action is action] for action in Action}
    yield [BuildResult(item, item.image_id, tagged=True) for item in by_action[Action.NOTHING]]
    built = [*by_action[Action.TEST], *by_action[Action.NAME]]
    yield pass_gate([BuildResult(item, item.image_id) for item in built], context)
    to_build = by_action[Action.BUILD]
    if not to_build:
        return
    prepared = prepare([item.image for item in to_build], context)
    ready = [item for item in to_build if item.image.name not in prepared.failed]
    yield [
        BuildResult(item, error=str(error), scope=scope_of(error))
        for item in to_build
        if (error := prepared.failed.get(item.image.name))
    ]
    containerd_store = context.engine.version().containerd_store
    for phase in phases(ready, context.project, containerd_store=containerd_store):
        yield _bake_and_test(phase, prepared.downloads, context)


def _bake_and_test(
    items: Sequence[PlanItem], downloads: Downloads, context: BuildContext
) -> Iterator[BuildResult]:
    baked = []
    for one in bake_images(items, downloads, context):
        if one.error is None:
            baked.append(one)
        else:
            yield one
    if len(baked) == len(items) or context.options.keep_going:
        yield from pass_gate(baked, context)


def _word(result: BuildResult) -> str:
    if result.ok:
        return "up to date" if result.item.action is Action.NOTHING else "named"
    return "cancelled" if (result.error or "").startswith("cancelled") else "failed"


def _reasons(failed: Sequence[BuildResult]) -> list[str]:
    """Return why images have no tag: one paragraph a reason, with all images that it concerns."""
    names: dict[str, list[str]] = {}
    for one in failed:
        names.setdefault(one.error or "", []).append(one.name)
    return [
        f"{', '.join(of)} {'was' if len(of) == 1 else 'were'} not tagged: {error}"
        for error, of in names.items()
    ]
