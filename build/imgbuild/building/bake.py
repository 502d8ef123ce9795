"""Building the planned images, a few at once; one that fails need not take the others with it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imgbuild.building.supplies import Supplies
from imgbuild.building.targets import bake_target
from imgbuild.building.workshop import Workshop
from imgbuild.engine.bake import BuildFailedError, run_bake
from imgbuild.plan.plan import PlanItem
from imgbuild.render.dockerfile import epoch_seconds


@dataclass(frozen=True)
class Baked:
    """One image as BuildKit left it: its id, or why there is none."""

    item: PlanItem
    image_id: str | None
    seconds: float
    error: str | None = None


def bake_images(
    items: Sequence[PlanItem], supplies: Supplies, workshop: Workshop, *, keep_going: bool
) -> Iterator[Baked]:
    """Build ``items`` in one bake and yield what became of each.

    Bake cancels the rest when one target fails; with ``keep_going`` the rest is built again
    without it (what was done already comes from the cache).

    Raises:
        BuildStoppedError: this machine cannot build (disk, engine, network).

    """
    left = list(items)
    started = time.monotonic()
    while left:
        log = _log_path(workshop.state, left)
        try:
            built = _bake(left, supplies, workshop, log)
        except BuildFailedError as error:
            seconds = time.monotonic() - started
            failed = {*error.failure.failed} if keep_going else {item.image.name for item in left}
            failed = failed or {left[0].image.name}
            yield from (
                Baked(item, None, seconds, _reason(item, error))
                for item in left
                if item.image.name in failed
            )
            left = [item for item in left if item.image.name not in failed]
            continue
        seconds = time.monotonic() - started
        yield from (Baked(item, built[item.image.name], seconds) for item in left)
        return


def _bake(
    items: Sequence[PlanItem], supplies: Supplies, workshop: Workshop, log: Path
) -> dict[str, str]:
    targets = [
        bake_target(
            item,
            workshop.inputs,
            supplies[item.image.name],
            workshop.project,
            workshop.revision,
        )
        for item in items
    ]
    built = run_bake(
        workshop.buildx,
        workshop.host,
        targets,
        log=log,
        events=workshop.display.event,
        epoch=epoch_seconds(items[0].image),
    )
    return {name: image.image_id for name, image in built.items()}


def _reason(item: PlanItem, error: BuildFailedError) -> str:
    if item.image.name in error.failure.failed:
        return str(error)
    return f"cancelled, since {', '.join(error.failure.failed)} failed"


def _log_path(state: Path, items: Sequence[PlanItem]) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%S")
    names = items[0].image.name if len(items) == 1 else f"{len(items)}-images"
    return state / "logs" / f"{stamp}-{names}.log"
