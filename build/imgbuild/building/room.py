"""Whether the disk has room for what the plan wants to build."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from imgbuild.building.workshop import Workshop
from imgbuild.errors import MachineError
from imgbuild.plan.plan import Action, PlanItem

GIB = 1 << 30
#: An image is about 1 GB (imgbuild build prints each one's size); its stages as much again.
BYTES_PER_IMAGE = 2 * GIB
#: What must be left in any case, so that the engine itself can go on.
RESERVE = 2 * GIB

#: With less than this free, what failed may well have failed for want of it.
SCARCE = 256 << 20


def require_room(items: Sequence[PlanItem], workshop: Workshop) -> None:
    """Raise unless the engine's data folder has room for the images to be built.

    An engine on another machine cannot be asked; then nothing is checked.

    Raises:
        MachineError: there is too little room; how much, where, and what to do.

    """
    wanted = sum(BYTES_PER_IMAGE for item in items if item.action is Action.BUILD)
    folder = Path(workshop.engine.version().root_dir)
    if not wanted or not folder.is_dir():
        return
    free = shutil.disk_usage(folder).free
    if free < min(wanted, 3 * BYTES_PER_IMAGE) + RESERVE:
        raise MachineError(
            f"{free / GIB:.1f} GB are free in the engine's data folder {folder}; about "
            f"{(wanted + RESERVE) / GIB:.0f} GB are needed. Free some, for example with "
            "`docker image prune` and `docker builder prune`; nothing was started."
        )


def scarce_room(workshop: Workshop) -> str:
    """Return what to say of the engine's disk if it is full, else nothing.

    Programs say it in many ways ("I/O error", a container that does not start), the disk in one.
    """
    try:
        folder = Path(workshop.engine.version().root_dir)
    except MachineError:  # it was lost on the way, which is said already
        return ""
    free = shutil.disk_usage(folder).free if folder.is_dir() else SCARCE
    if free >= SCARCE:
        return ""
    return (
        f"The engine's disk is full: {free / (1 << 20):.0f} MB are free in {folder}. Free some, "
        "for example with `imgbuild clean`, `docker image prune` and `docker builder prune`, and "
        "build again: what is finished is kept."
    )
