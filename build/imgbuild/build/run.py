"""``imgbuild build``: the pipeline from the plan to tagged images."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from imgbuild.build.context import BuildContext, image_locks
from imgbuild.build.disk_space import full_disk, require_disk_space
from imgbuild.build.gate import pass_gate
from imgbuild.build.one_bake import bake_images
from imgbuild.build.prepare import Downloads, prepare
from imgbuild.build.result import BuildResult, FailureScope, scope_of
from imgbuild.build.reuse import keep, release, take
from imgbuild.build.targets import phases
from imgbuild.engine.progress import ImagesPlanned, ImageState
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.container import remove_leftovers


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
        # One paragraph a reason, with all images that it concerns.
        names: dict[str, list[str]] = {}
        for one in failed:
            names.setdefault(one.error or "", []).append(one.name)
        reasons = [
            f"{', '.join(of)} {'was' if len(of) == 1 else 'were'} not tagged: {error}"
            for error, of in names.items()
        ]
        text = "\n".join(filter(None, (*reasons, str(self.stop or ""), self.full_disk)))
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
        remove_leftovers(names, context.engine)
        # Only the engine is asked again, since another imgbuild may have finished meanwhile: the
        # digests are those of the first plan.
        items = take(context.plan(test=context.options.test), context)
        _require_machine(items, context)
        actions = {item.image.name: str(item.action) for item in items}
        context.display.on_event(ImagesPlanned(actions))
        results: list[BuildResult] = []
        stop = None
        try:
            with context.display:
                for result in _work(items, context):
                    results.append(result)
                    state = ImageState(result.name, _word(result), error=result.error)
                    context.display.on_event(state)
        except (ImgbuildError, OSError) as error:
            stop = error
        finally:
            release(items, context)
        results.sort(key=lambda one: names.index(one.name))
        keep(results, context)
        disk = "" if all(one.ok for one in results) else full_disk(context.engine)
        return Build(tuple(results), len(items), stop, disk)


def _require_machine(items: Sequence[PlanItem], context: BuildContext) -> None:
    """Raise before anything is fetched if there is no buildx, or too little disk space."""
    to_build = [item.image for item in items if item.action is Action.BUILD]
    if to_build:
        context.buildx  # noqa: B018 - it is found here
        require_disk_space(to_build, context.engine)


def _work(items: Sequence[PlanItem], context: BuildContext) -> Iterator[BuildResult]:
    """Yield the result of each image as soon as it is known.

    After a failure no further step begins, unless ``keep_going``; after one of the engine none does
    in any case.
    """
    for step in _steps(items, context):
        ended = False
        for one in step:
            ended = ended or one.ends_build(keep_going=context.options.keep_going)
            yield one
        if ended:
            return


def _steps(items: Sequence[PlanItem], context: BuildContext) -> Iterator[Iterable[BuildResult]]:
    """Yield the results of each step; the next step begins when they are used up."""
    done = [item for item in items if item.action is Action.NOTHING]
    yield [BuildResult(item, item.image_id, tagged=True) for item in done]
    built = [item for item in items if item.action in {Action.TEST, Action.NAME}]
    yield pass_gate([BuildResult(item, item.image_id) for item in built], context)
    to_build = [item for item in items if item.action is Action.BUILD]
    if not to_build:
        return
    downloads, failed = prepare([item.image for item in to_build], context)
    lacking = [(item, failed.get(item.image.name)) for item in to_build]
    yield [BuildResult(item, error=str(e), scope=scope_of(e)) for item, e in lacking if e]
    ready = [item for item, error in lacking if error is None]
    containerd_store = context.engine.version().containerd_store
    for phase in phases(ready, context.project, containerd_store=containerd_store):
        yield _bake_and_test(phase, downloads, context)


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
