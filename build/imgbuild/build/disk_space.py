"""Check the free disk space of the engine."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.errors import MachineError
from imgbuild.matrix.images import Image

GIB = 1 << 30
#: An image is about 1 GB (imgbuild build prints each one's size); its stages as much again.
FIRST_IMAGE = 2 * GIB
#: What another on the same system and for the same variant adds. Source: measured, 29 images and
#: their build cache took 12.3 GB of an engine's disk.
FURTHER_IMAGE = GIB // 2
#: The most that is required, however many images: most steps of a large build are usually cached,
#: and each tagged image takes the place of its predecessor.
MOST = 6 * GIB
#: What must be left in any case, so that the engine itself can go on.
RESERVE = 2 * GIB
#: With less than this free, a failure may well come from the full disk.
SCARCE = 256 << 20
_FREE_SOME = (
    "Free space, for example with `imgbuild clean`, `docker image prune` and `docker builder prune`"
)


def require_disk_space(images: Sequence[Image], engine: Engine) -> None:
    """Raise unless the engine's data folder has space for the images to be built.

    The disk of an engine on another machine cannot be seen; then nothing is checked.

    Raises:
        MachineError: there is too little; how much, where, and what to do.

    """
    needed = needed_bytes(images)
    folder = Path(engine.version().root_dir)
    if not needed or not folder.is_dir():
        return
    free = shutil.disk_usage(folder).free
    if free < needed:
        count = "1 image" if len(images) == 1 else f"{len(images)} images"
        raise MachineError(
            f"{free / 1e9:.1f} GB are free in the engine's data folder {folder}; at least "
            f"{needed / 1e9:.1f} GB must be to build {count}. {_FREE_SOME}; nothing was started."
        )


def needed_bytes(images: Sequence[Image]) -> int:
    """Return how many bytes must be free to build the images; 0 for none."""
    if not images:
        return 0
    first = len({(image.os_name, image.variant) for image in images})
    return min(first * FIRST_IMAGE + (len(images) - first) * FURTHER_IMAGE, MOST) + RESERVE


def full_disk(engine: Engine) -> str:
    """Return the message that the engine's disk is full, or nothing.

    Programs report it in many ways ("I/O error", a container that does not start), the disk in one.
    """
    try:
        folder = Path(engine.version().root_dir)
    except MachineError:  # the engine was lost, which is reported already
        return ""
    free = shutil.disk_usage(folder).free if folder.is_dir() else SCARCE
    if free >= SCARCE:
        return ""
    return (
        f"The engine's disk is full: {free / (1 << 20):.0f} MB are free in {folder}. {_FREE_SOME}, "
        "and build again: what is finished is kept."
    )
