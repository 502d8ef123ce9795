"""Divide a build between builders; what one that dies has not built goes to the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

from imgbuild.build.bake_images import BakeJob, BuilderLostError, bake_images
from imgbuild.build.result import BuildResult
from imgbuild.build.targets import phases
from imgbuild.dockerfile.labels import NAME
from imgbuild.engine.discovery import Buildx, answers
from imgbuild.parallel import background, in_parallel
from imgbuild.plan.division import divide, estimated_works
from imgbuild.plan.plan import PlanItem
from imgbuild.project import Project

#: How often a builder at work is asked whether it is there, in seconds, and how often in a row it
#: may not answer: on a busy machine an answer takes long.
WATCH_SECONDS, MISSED = 15.0, 2


def build_all(items: Sequence[PlanItem], job: BakeJob, must_stop: Callable[[], bool]) -> None:
    """Build the images by the context's builders; each one, or its error, is submitted.

    One builder gets all. Of several, each gets a part in which images share their stages, by what
    earlier builds of these images took. Once ``must_stop()``, no further bake begins.
    """
    context, left, builders = job.context, [*items], [*job.context.builders]
    built = [image for image in context.stored if NAME in image.labels]
    earlier = {one.labels[NAME]: context.store.work_seconds(one.id) for one in built}
    while left and not must_stop():
        parts = _divided(left, len(builders), context.project, earlier)
        lost = _side_by_side([*zip(builders, parts, strict=True)], job, must_stop)
        left = [item for one in lost for item in one.left]
        builders = [one for one in builders if one.builder not in {each.name for each in lost}]
        if not builders:
            for error in lost:
                for item in error.left:
                    job.submit(BuildResult(item, error=error))
            return


def _divided(
    items: Sequence[PlanItem], count: int, project: Project, earlier: Mapping[str, float]
) -> Sequence[Sequence[PlanItem]]:
    """Return each builder's part, in the order of ``items``; ``earlier`` builds took so long."""
    if count == 1:
        return [items]
    works = estimated_works([item.image for item in items], project, earlier)
    parts = [{work.name for work in part} for part in divide(works, count)]
    return [[item for item in items if item.image.name in part] for part in parts]


def _side_by_side(
    parts: Sequence[tuple[Buildx, Sequence[PlanItem]]], job: BakeJob, must_stop: Callable[[], bool]
) -> list[BuilderLostError]:
    """Let each builder build its part, and return why those did not that were lost."""
    context, stop = job.context, Event()

    def submit(result: BuildResult) -> None:
        job.submit(result)
        if result.ends_build(keep_going=context.options.keep_going):
            stop.set()

    def build(part: tuple[Buildx, Sequence[PlanItem]]) -> BuilderLostError | None:
        buildx, items = part
        # A containerd store unpacks a layer again for each image that is exported at the moment.
        in_phases = buildx.builder is None and context.engine.version().containerd_store
        for phase in phases(items, context.project) if in_phases else [items]:
            if not phase or stop.is_set() or must_stop():
                break
            try:
                with _watched(buildx, context.host, stop) as stopped:
                    bake_images(phase, replace(job, submit=submit), buildx, stopped)
            except BuilderLostError as error:
                names = ", ".join(item.image.name for item in error.left)
                if len(parts) > 1:
                    context.say(f"{error} Builders that still answer build the rest: {names}.")
                return error
        return None

    lost = in_parallel(build, parts, len(parts), stop=stop.set, grace=None)
    return [one for one in lost if one]


@contextmanager
def _watched(buildx: Buildx, host: str | None, stop: Event) -> Iterator[Callable[[], bool]]:
    """Give whether ``stop`` is set, or a builder has not answered twice in a row.

    A machine that loses its power ends no connection.
    """
    over, lost = Event(), Event()

    def watch() -> None:
        missed = 0
        while missed < MISSED and not over.wait(WATCH_SECONDS):
            missed = 0 if answers(buildx, host) else missed + 1
        if missed == MISSED:
            lost.set()

    if buildx.builder:
        background(watch)
    try:
        yield lambda: stop.is_set() or lost.is_set()
    finally:
        over.set()
