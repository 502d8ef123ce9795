"""Run the plan of a build: pull, build, test, tag."""

from collections import deque
from collections.abc import Sequence

from imgbuild.build.context import BuildContext
from imgbuild.build.prepare import full_disk, prepare, require_disk_space
from imgbuild.build.pull import PullSource, pull_images, untag_pulled
from imgbuild.build.result import Build, BuildResult
from imgbuild.build.workers import ImageQueue, run_queue, sort_items
from imgbuild.core.errors import ImgbuildError
from imgbuild.core.events import ImageState
from imgbuild.core.outcome import Outcome
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.container import remove_leftovers


def run_plan(
    planned: Sequence[PlanItem], source: PullSource | None, context: BuildContext
) -> Build:
    """Pull, build, test and tag the images of a plan.

    MachineError: there is no buildx, or the disk has too little space.
    """
    names = [item.image.name for item in planned]
    remove_leftovers(names, context.engine)
    items = pull_images(planned, source, context)
    to_build = [item for item in items if item.action is Action.BUILD]
    if to_build:
        context.builders  # noqa: B018 - if a builder is missing, fail before fetching anything
        require_disk_space([item.image for item in to_build], context.engine)
    results: list[BuildResult] = []

    def add_result(result: BuildResult) -> None:
        results.append(result)
        context.display.show_state(ImageState(result.name, _state(result)))

    def must_stop() -> bool:
        return any(result.ends_build(keep_going=context.options.keep_going) for result in results)

    queue = ImageQueue(
        items=deque(item for item in items if item.action in {Action.TEST, Action.TAG}),
        downloads={},
        context=context,
        done=add_result,
        must_stop=must_stop,
        test_session=context.test_session,
    )
    stop: ImgbuildError | OSError | None = None
    try:
        with context.display:
            for item in items:
                if item.action is Action.NOTHING:
                    add_result(BuildResult(item, item.image_id, tagged=True))
            run_queue(queue, [None])
            if to_build and not must_stop():
                queue.downloads, failed = prepare([item.image for item in to_build], context)
                for item in sort_items(to_build):
                    if error := failed.get(item.image.name):
                        add_result(BuildResult(item, error=error))
                    else:
                        queue.items.append(item)
                run_queue(queue, context.builders)
    except (ImgbuildError, OSError) as error:
        stop = error
    finally:
        untag_pulled(items, source, context.engine)
    ordered = sorted(results, key=lambda result: names.index(result.name))
    disk = "" if all(result.ok for result in ordered) else full_disk(context.engine)
    return Build(tuple(ordered), len(items), stop, disk)


def _state(result: BuildResult) -> Outcome:
    if result.ok:
        return Outcome.UP_TO_DATE if result.item.action is Action.NOTHING else Outcome.TAGGED
    return Outcome.CANCELLED if result.cancelled else Outcome.FAILED
