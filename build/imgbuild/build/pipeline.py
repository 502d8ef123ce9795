"""Do what the plan of a build says: pull, build, test, tag."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import WheelCache
from imgbuild.build.prepare import full_disk, prepare, require_disk_space, with_bases
from imgbuild.build.pull import PullSource, pull_images, untag_pulled
from imgbuild.build.result import Build, BuildResult
from imgbuild.build.workers import ImageQueue, in_build_order, work_through
from imgbuild.errors import ImgbuildError
from imgbuild.events import ImagesPlanned, ImageState, Listener, State
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.container import remove_leftovers
from imgbuild.suites.runner import TestOptions


def carry_out(
    planned: Sequence[PlanItem], source: PullSource | None, context: BuildContext
) -> Build:
    """As `build_images`. MachineError: there is no buildx, or the disk has too little space."""
    names = [item.image.name for item in planned]
    remove_leftovers(names, context.engine)
    items = pull_images(planned, source, context)
    if images := [item.image for item in _with(items, Action.BUILD)]:
        context.builders  # noqa: B018 - a missing one ends the build before anything is fetched
        require_disk_space(images, context.engine)
        settings, inputs = with_bases(images, context)
        if inputs is not context.inputs:  # another base is another input
            context = replace(context, settings=settings, inputs=inputs)
            planned = context.plan(test=context.options.test)
            items = pull_images(planned, source, context)
    context.display.on_event(ImagesPlanned({item.image.name: str(item.action) for item in items}))
    results = _Results(context.display.on_event, context.options.keep_going)
    stop: ImgbuildError | OSError | None = None
    try:
        with context.display:
            _work(items, results, context)
    except (ImgbuildError, OSError) as error:
        stop = error
    finally:
        untag_pulled(items, source, context.engine)
    ordered = sorted(results.results, key=lambda result: names.index(result.name))
    disk = "" if all(result.ok for result in ordered) else full_disk(context.engine)
    return Build(tuple(ordered), len(items), stop, disk)


def _work(items: Sequence[PlanItem], results: "_Results", context: BuildContext) -> None:
    """Do what the plan says; after a result that ends the build, no further step begins."""
    for item in _with(items, Action.NOTHING):
        results.add(BuildResult(item, item.image_id, tagged=True))
    queue = ImageQueue(
        items=deque(_with(items, Action.TEST, Action.TAG)),
        downloads={},
        context=context,
        done=results.add,
        must_stop=results.must_stop,
        wheels=WheelCache(context.cache),
        test_options=TestOptions(slots=threading.Semaphore(context.options.jobs)),
    )
    work_through(queue, [None])
    to_build = _with(items, Action.BUILD)
    if not to_build or results.must_stop():
        return
    queue.downloads, failed = prepare([item.image for item in to_build], context)
    for item in to_build:
        if error := failed.get(item.image.name):
            results.add(BuildResult(item, error=error))
    ready = [item for item in to_build if item.image.name not in failed]
    queue.items.extend(in_build_order(ready))
    work_through(queue, context.builders)


def _with(items: Sequence[PlanItem], *actions: Action) -> list[PlanItem]:
    return [item for item in items if item.action in actions]


@dataclass
class _Results:
    """The results so far, each of them shown."""

    show: Listener
    keep_going: bool
    results: list[BuildResult] = field(default_factory=list)

    def add(self, result: BuildResult) -> None:
        self.results.append(result)
        self.show(ImageState(result.name, _state(result)))

    def must_stop(self) -> bool:
        """Whether one ends the build: a failure unless ``keep_going``, or one of the engine."""
        return any(result.ends_build(keep_going=self.keep_going) for result in self.results)


def _state(result: BuildResult) -> State:
    if result.ok:
        return State.UP_TO_DATE if result.item.action is Action.NOTHING else State.TAGGED
    return State.CANCELLED if result.cancelled else State.FAILED
