"""Temporary folders that do not outlive their process for long, even one that was killed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imgbuild.errors import MachineError
from imgbuild.project import state_dir


@contextmanager
def work_folder(purpose: str) -> Iterator[Path]:
    """Give an empty folder for ``purpose``; it goes with the block, or with the next one's start.

    Raises:
        MachineError: the state folder cannot be written.

    """
    parent = state_dir() / "work"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-{purpose}-", dir=parent))
    except OSError as error:
        raise MachineError(
            f"Cannot work in {parent}: {error.strerror}. Free space there, or set XDG_STATE_HOME "
            "to a folder that can be written."
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed processes left; a process id that was given again keeps it a while."""
    for folder in parent.iterdir():
        owner = folder.name.split("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)
