"""Whether the disk has room for what the plan wants to build."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from imgbuild.build.workshop import Workshop
from imgbuild.errors import MachineError
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action, PlanItem

GIB = 1 << 30
#: An image is about 1 GB (imgbuild build prints each one's size); its stages as much again.
FIRST_IMAGE = 2 * GIB
#: What another on the same system and for the same variant adds. Source: measured, 29 images and
#: their build cache took 12.3 GB of an engine's disk.
FURTHER_IMAGE = GIB // 2
#: More is not asked for, however many images: most steps of a large build are usually cached, and
#: each image that is named takes the place of its predecessor.
MOST = 6 * GIB
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
    needed = room_for([item.image for item in items if item.action is Action.BUILD])
    folder = Path(workshop.engine.version().root_dir)
    if not needed or not folder.is_dir():
        return
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MachineError(
            f"{free / 1e9:.1f} GB are free in the engine's data folder {folder}; at least "
            f"{needed / 1e9:.1f} GB must be to build {_counted(items)}. Free some, for example "
            "with `imgbuild clean`, `docker image prune` and `docker builder prune`; nothing was "
            "started."
        )


def room_for(images: Sequence[Image]) -> int:
    """Return how many bytes must be free to build the images; 0 for none."""
    if not images:
        return 0
    first = len({(image.os_name, image.variant) for image in images})
    wanted = first * FIRST_IMAGE + (len(images) - first) * FURTHER_IMAGE
    return min(wanted, MOST) + RESERVE


def _counted(items: Sequence[PlanItem]) -> str:
    count = sum(item.action is Action.BUILD for item in items)
    return "1 image" if count == 1 else f"{count} images"


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
