"""Building the planned images in one bake; one that fails need not take the others with it."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.build.blame import Blame, blame_of
from imgbuild.build.shared_stages import share_packages
from imgbuild.build.supplies import Supplies
from imgbuild.build.targets import bake_target
from imgbuild.build.wheels import Wheels, open_wheels
from imgbuild.build.workshop import Workshop
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.bake import (
    BakeTarget,
    BuildFailedError,
    BuildStoppedError,
    BuiltImage,
    run_bake,
)
from imgbuild.engine.failure import BuildFailure
from imgbuild.engine.progress import BakeBegun, BakeEvent, Transfer
from imgbuild.plan.plan import PlanItem


@dataclass(frozen=True)
class Baked:
    """One image as BuildKit left it: its id, or why there is none."""

    item: PlanItem
    image_id: str | None
    seconds: float
    error: str | None = None
    blame: Blame = Blame.IMAGE


def bake_images(
    items: Sequence[PlanItem], supplies: Supplies, workshop: Workshop, *, keep_going: bool
) -> Iterator[Baked]:
    """Build ``items`` in one bake and yield what became of each.

    Bake cancels the rest when one target fails; with ``keep_going`` the rest is built again
    without it (what was done already comes from the cache), unless the fault is `Blame.ALL`'s.
    """
    left = list(items)
    started = time.monotonic()
    while left:
        log = _log_path(workshop.state, left)
        try:
            built = _bake(left, supplies, workshop, log)
        except (BuildFailedError, BuildStoppedError) as error:
            seconds = time.monotonic() - started
            blamed = _images_of(error, left)
            told = _of_images(error.failure, blamed, left)
            blame = blame_of(error)
            alone = keep_going and blame is not Blame.ALL
            failed = blamed if alone else {item.image.name for item in left}
            yield from (
                Baked(item, None, seconds, _reason(item, told, blamed), blame)
                for item in left
                if item.image.name in failed
            )
            left = [item for item in left if item.image.name not in failed]
            continue
        seconds = time.monotonic() - started
        for item in left:
            image = built[item.image.name]
            own = seconds if image.seconds is None else image.seconds
            yield Baked(item, image.image_id, own)
        return


def _bake(
    items: Sequence[PlanItem], supplies: Supplies, workshop: Workshop, log: Path
) -> Mapping[str, BuiltImage]:
    with open_wheels(items, workshop) as wheels:
        stacks = {item.image.name: item.image.stack for item in items}
        own = [_target(item, supplies, workshop, wheels) for item in items]
        targets = share_packages(own, stacks)
        exports = [
            wheels.export(target)
            for target in targets
            if target.name in stacks and wheels.is_missing(target.name)
        ]
        return run_bake(
            workshop.buildx,
            workshop.host,
            [*targets, *exports],
            log=log,
            listener=lambda event: _show(event, stacks, workshop),
            epoch=epoch_seconds(items[0].image),
        )


def _target(item: PlanItem, supplies: Supplies, workshop: Workshop, wheels: Wheels) -> BakeTarget:
    name = item.image.name
    contexts = {**supplies[name], **wheels.context(name)}
    return bake_target(item, workshop.inputs, contexts, workshop.project, workshop.revision)


def _show(event: BakeEvent, names: Collection[str], workshop: Workshop) -> None:
    """Tell of the images alone: a wheel's export and a shared stage are steps of theirs."""
    if isinstance(event, (BakeBegun, Transfer)):
        event = replace(event, targets=tuple(one for one in event.targets if one in names))
    elif event.target is not None and event.target not in names:
        return
    workshop.display.on_event(event)


def _images_of(error: BuildFailedError | BuildStoppedError, items: Sequence[PlanItem]) -> set[str]:
    """Return the images to blame; a target beside an image has the image's name as a prefix."""
    names = [item.image.name for item in items]
    blamed = {
        max((name for name in names if failed.startswith(name)), key=len, default="")
        for failed in error.failure.failed
    }
    return blamed - {""} or {names[0]}


def _of_images(failure: BuildFailure, blamed: set[str], items: Sequence[PlanItem]) -> BuildFailure:
    """Return the failure as people know its targets: images alone, not what is beside them."""
    names = {item.image.name for item in items}
    cancelled = tuple(one for one in failure.cancelled if one in names - blamed)
    return replace(failure, failed=tuple(sorted(blamed)), cancelled=cancelled)


def _reason(item: PlanItem, failure: BuildFailure, blamed: set[str]) -> str:
    if item.image.name in blamed:
        return str(failure)
    return f"cancelled, since {', '.join(sorted(blamed))} failed"


def _log_path(state: Path, items: Sequence[PlanItem]) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%S")
    names = items[0].image.name if len(items) == 1 else f"{len(items)}-images"
    return state / "logs" / f"{stamp}-{names}.log"
