"""Divide a build between builders; what one that dies has not built goes to the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

from imgbuild.build.bake_images import BakeJob, Builder, BuilderLostError, bake_images
from imgbuild.build.context import BuildContext
from imgbuild.build.result import BuildResult
from imgbuild.build.targets import phases
from imgbuild.dockerfile.labels import NAME
from imgbuild.engine.discovery import Buildx, answers
from imgbuild.engine.progress import BakeBegun, BakeEvent
from imgbuild.parallel import background, in_parallel
from imgbuild.plan.division import divide, estimated_works
from imgbuild.plan.plan import PlanItem

#: Steps of the bakes that run side by side are told apart: no bake has so many.
NUMBERS = 1_000_000
#: How often a builder at work is asked whether it is there, in seconds, and how often in a row it
#: may not answer: on a busy machine an answer takes long.
WATCH_SECONDS, MISSED = 15.0, 2


def build_all(items: Sequence[PlanItem], job: BakeJob, must_stop: Callable[[], bool]) -> None:
    """Build the images by the context's builders; each one, or its error, is submitted.

    One builder gets all. Of several, each gets a part in which images share their stages, by what
    earlier builds of these images took. Once ``must_stop()``, no further bake begins.
    """
    left, builders = [*items], [*job.context.builders]
    while left and not must_stop():
        work = _Round(job, len(builders) > 1, must_stop, Event())
        parts = _divided(left, len(builders), job.context)
        numbered = [*enumerate(zip(builders, parts, strict=True))]
        lost = in_parallel(work.bake, numbered, len(builders), stop=work.stop.set, grace=None)
        found = [one for one in lost if one]
        left = [item for one in found for item in one.left]
        builders = [one for one in builders if one.builder not in {each.name for each in found}]
        if not builders:
            for error in found:
                for item in error.left:
                    job.submit(BuildResult(item, error=error))
            return


def _divided(
    items: Sequence[PlanItem], count: int, context: BuildContext
) -> Sequence[Sequence[PlanItem]]:
    """Return each builder's part, in the order of ``items``."""
    if count == 1:
        return [items]
    known = {item.image.name: item for item in items}
    works = estimated_works([item.image for item in items], context.project, _seconds(context))
    return [
        sorted((known[work.name] for work in part), key=items.index)
        for part in divide(works, count)
    ]


def _seconds(context: BuildContext) -> Mapping[str, float]:
    """Return what earlier builds here took, by image."""
    built = [image for image in context.stored if NAME in image.labels]
    found = {image.labels[NAME]: context.store.work_seconds(image.id) for image in built}
    return {name: seconds for name, seconds in found.items() if seconds}


@dataclass(frozen=True)
class _Round:
    """What the builders, perhaps ``several``, do side by side; ``stop`` ends all their bakes."""

    job: BakeJob
    several: bool
    must_stop: Callable[[], bool]
    stop: Event

    def bake(self, part: tuple[int, tuple[Buildx, Sequence[PlanItem]]]) -> BuilderLostError | None:
        """Build one builder's part; return why it did not, if the builder was lost."""
        number, (buildx, items) = part
        context, job = self.job.context, replace(self.job, submit=self._submit)
        listener = partial(_numbered, context.display.on_event, number * NUMBERS)
        # A containerd store unpacks a layer again for each image that is exported at the moment.
        in_phases = buildx.builder is None and context.engine.version().containerd_store
        for phase in phases(items, context.project) if in_phases else [items]:
            if not phase or self.stop.is_set() or self.must_stop():
                break
            try:
                with _watched(buildx, context.host, self.stop) as stopped:
                    bake_images(phase, job, Builder(buildx, listener, stopped))
            except BuilderLostError as error:
                names = ", ".join(item.image.name for item in error.left)
                if self.several:
                    context.say(f"{error} What it has not built goes to the others: {names}.")
                return error
        return None

    def _submit(self, result: BuildResult) -> None:
        self.job.submit(result)
        if result.ends_build(keep_going=self.job.context.options.keep_going):
            self.stop.set()


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


def _numbered(listener: Callable[[BakeEvent], None], more: int, event: BakeEvent) -> None:
    listener(event if isinstance(event, BakeBegun) else replace(event, number=event.number + more))
