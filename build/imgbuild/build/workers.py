"""The workers of a build: each takes the next image, builds it, tests it and tags it."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.build.gate import test_and_tag
from imgbuild.build.image_build import build_item
from imgbuild.build.result import BuildResult
from imgbuild.core.errors import ImgbuildError, MachineError
from imgbuild.core.parallel import in_parallel
from imgbuild.engine.discovery import Buildx, is_reachable
from imgbuild.engine.failure import BuildFailedError
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.runner import TestSession

#: How many images each builder builds, or has tested, at a time. While one is exported or tested,
#: others are built. With two, nothing overlaps the first steps of images on another Python.
WORKERS = 3


@dataclass
class ImageQueue:
    """The images that no worker has begun, and what all workers need.

    ``downloads`` are the folders of each image by named context. ``done`` takes in a result, and
    ``must_stop`` says whether one ends the build. ``compilers`` has a lock for each Horovod wheel,
    by its key. ``lost`` says why a builder is lost, by its name.
    """

    items: deque[PlanItem]
    downloads: Mapping[str, Mapping[str, Path]]
    context: BuildContext
    done: Callable[[BuildResult], None]
    must_stop: Callable[[], bool]
    test_session: TestSession
    compilers: dict[str, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock)
    )
    lost: dict[str, str] = field(default_factory=dict)
    interrupted: threading.Event = field(default_factory=threading.Event)

    def is_stopped(self) -> bool:
        return self.interrupted.is_set() or self.must_stop()

    def interrupt(self) -> None:
        self.interrupted.set()
        self.test_session.stop.set()


def sort_items(items: Iterable[PlanItem]) -> list[PlanItem]:
    """Return the items so that images of one stack and Python follow each other.

    BuildKit (Docker 28) runs shared steps again if a build between them has only some of them.
    Source: moby/buildkit#4674, and docs/evidence.md.
    """
    return sorted(items, key=lambda item: (item.image.stack, item.image.python_minor))


def run_queue(queue: ImageQueue, builders: Iterable[Buildx | None]) -> None:
    """Build, test and tag the images of the queue by these builders; None only tests and tags.

    If a builder dies, the others build the images that it had begun. An interrupt ends all work.
    """
    left = [*builders]
    while left and queue.items and not queue.is_stopped():
        workers = [*left] * WORKERS  # the first images go to different builders
        in_parallel(
            lambda buildx: _run_worker(queue, buildx),
            workers,
            len(workers),
            stop=queue.interrupt,
            grace=None,
        )
        left = [buildx for buildx in left if not _is_lost(buildx, queue)]
    if not left:
        for item in queue.items:
            queue.done(BuildResult(item, error=MachineError(" ".join(queue.lost.values()))))


def _run_worker(queue: ImageQueue, buildx: Buildx | None) -> None:
    """Work on one image after the other, until none is left or the build ends."""
    while not queue.is_stopped() and not _is_lost(buildx, queue):
        try:
            item = queue.items.popleft()
        except IndexError:
            return
        started = time.monotonic()
        try:
            result = _build_and_test(item, queue, buildx)
        except CancelledError:
            result = BuildResult(item, cancelled=True)
        except BuildFailedError as error:
            if buildx and buildx.builder and not is_reachable(buildx):
                _mark_lost(item, queue, buildx.builder, error)
                return
            result = BuildResult(item, build_seconds=time.monotonic() - started, error=error)
        except ImgbuildError as error:  # its own, not the whole build's
            result = BuildResult(item, error=error)
        if not queue.interrupted.is_set():
            queue.done(result)


def _build_and_test(item: PlanItem, queue: ImageQueue, buildx: Buildx | None) -> BuildResult:
    """Build one image if that is to be done, test it, and tag it."""
    context, result = queue.context, BuildResult(item, item.image_id)
    if buildx and item.action is Action.BUILD:
        result = build_item(
            item,
            context,
            buildx,
            downloads=queue.downloads[item.image.name],
            compilers=queue.compilers,
            stopped=queue.is_stopped,
        )
    # So that the next build, and `imgbuild clean`, know whose it is if this one ends here.
    own, seconds = item.action is Action.BUILD, result.work_seconds
    context.store.import_results(result.image_id or "", {}, built=own, seconds=seconds)
    if queue.is_stopped():
        return replace(result, cancelled=True)
    return test_and_tag(result, context, queue.test_session)


def _is_lost(buildx: Buildx | None, queue: ImageQueue) -> bool:
    return buildx is not None and buildx.builder in queue.lost


def _mark_lost(item: PlanItem, queue: ImageQueue, builder: str, error: BuildFailedError) -> None:
    """Give an image back, whose builder no longer answers."""
    queue.items.appendleft(item)
    if builder not in queue.lost:
        why = f"{error.cause}; the whole output is in {error.log}"
        queue.lost[builder] = (
            f"The builder {builder} no longer answers ({why}). `docker buildx inspect {builder}` "
            "shows its nodes."
        )
        queue.context.log(f"{queue.lost[builder]} Builders that still answer build the rest.")
