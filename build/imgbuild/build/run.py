"""``imgbuild build``: the pipeline from the plan to tagged images."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from imgbuild.build.context import BuildContext, image_locks
from imgbuild.build.gate import open_gate
from imgbuild.build.one_bake import bake_images
from imgbuild.build.prepare import full_disk, prepare, require_disk_space, with_pinned_bases
from imgbuild.build.remote import store_results, take_from_stores, untag_pulled
from imgbuild.build.result import Build, BuildResult, CancelledBuildError
from imgbuild.build.targets import phases
from imgbuild.engine.progress import ImagesPlanned, ImageState
from imgbuild.errors import ImgbuildError
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.container import remove_leftovers


def build_images(context: BuildContext) -> Build:
    """Build, test and tag the context's images; what is finished is kept also if the build stops.

    InputError: a lock or a Dockerfile is not the current one.
    MachineError: another imgbuild works on one of the images, or the disk has too little space.
    """
    names = [image.name for image in context.images]
    with image_locks(names, context.host, context.state / "locks"):
        remove_leftovers(names, context.engine)
        # Only the engine is asked again, since another imgbuild may have finished meanwhile: the
        # digests are those of the first plan.
        items = take_from_stores(context.plan(test=context.options.test), context)
        if to_build := _with(items, Action.BUILD):
            context.buildx  # noqa: B018 - a missing one ends the build before anything is fetched
            require_disk_space([item.image for item in to_build], context.engine)
            settled = with_pinned_bases([item.image for item in to_build], context)
            if settled is not context:
                context = settled
                items = take_from_stores(context.plan(test=context.options.test), context)
        context.display.on_event(
            ImagesPlanned({item.image.name: str(item.action) for item in items})
        )
        done, stop = _Done(context), None
        try:
            with context.display:
                _work(items, done, context)
        except (ImgbuildError, OSError) as error:
            stop = error
        finally:
            untag_pulled(items, context)
        results = sorted(done.results, key=lambda one: names.index(one.name))
        store_results(results, context)
        disk = "" if all(one.ok for one in results) else full_disk(context.engine)
        return Build(tuple(results), len(items), stop, disk)


def _work(items: Sequence[PlanItem], done: "_Done", context: BuildContext) -> None:
    """Do what the plan says; after a result that ends the build, no further step begins."""
    for item in _with(items, Action.NOTHING):
        done.add(BuildResult(item, item.image_id, tagged=True))
    with open_gate(context, done.add, done.ended) as take:
        for item in _with(items, Action.TEST, Action.NAME):
            take(BuildResult(item, item.image_id))
    to_build = _with(items, Action.BUILD)
    if done.ended() or not to_build:
        return
    downloads, failed = prepare([item.image for item in to_build], context)
    for item in to_build:
        if error := failed.get(item.image.name):
            done.add(BuildResult(item, error=error))
    ready = [item for item in to_build if item.image.name not in failed]
    # Such a store unpacks a layer again for each image that is exported at the same moment.
    in_phases = context.engine.version().containerd_store
    with open_gate(context, done.add, done.ended) as take:
        for phase in phases(ready, context.project) if in_phases else [ready]:
            if not done.ended():
                bake_images(phase, downloads, context, take)


def _with(items: Sequence[PlanItem], *actions: Action) -> list[PlanItem]:
    return [item for item in items if item.action in actions]


@dataclass
class _Done:
    """The results so far, each of them shown."""

    context: BuildContext
    results: list[BuildResult] = field(default_factory=list)

    def add(self, result: BuildResult) -> None:
        self.results.append(result)
        error = str(result.error) if result.error else None
        self.context.display.on_event(ImageState(result.name, _word(result), error=error))

    def ended(self) -> bool:
        """Whether one ends the build: a failure unless ``keep_going``, or one of the engine."""
        keep_going = self.context.options.keep_going
        return any(one.ends_build(keep_going=keep_going) for one in self.results)


def _word(result: BuildResult) -> str:
    if result.ok:
        return "up to date" if result.item.action is Action.NOTHING else "named"
    return "cancelled" if isinstance(result.error, CancelledBuildError) else "failed"
