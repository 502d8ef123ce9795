"""``uv``, as a build context: the program that installs the locked packages into an image."""

import filecmp
import os
import shutil
from importlib.metadata import version
from pathlib import Path

from imgbuild.errors import MachineError
from imgbuild.files import stored_folder


def uv_context(cache: Path) -> Path:
    """Return a folder that holds the ``uv`` binary of the installed package, and nothing else.

    BuildKit sends a whole context to the builder, so it must not be the folder uv lives in.

    Raises:
        MachineError: the package has no binary, or the cache cannot be written.

    """
    source = _uv_binary()
    status = source.stat()
    final = cache / "uv" / f"{version('uv')}-{status.st_size:x}-{status.st_mtime_ns:x}"

    def make(folder: Path) -> None:
        _link_or_copy(source, folder / "uv")

    def is_whole(folder: Path) -> bool:
        stored = folder / "uv"
        only = folder.is_dir() and [path.name for path in folder.iterdir()] == ["uv"]
        return only and os.access(stored, os.X_OK) and _same(stored, source)

    return stored_folder(final, make, is_whole)


def _same(stored: Path, source: Path) -> bool:
    """Return whether the two are one file, as a rule, or hold the same."""
    return stored.samefile(source) or filecmp.cmp(stored, source, shallow=False)


def _uv_binary() -> Path:
    import uv  # noqa: PLC0415 (only when a build is prepared)

    try:
        return Path(uv.find_uv_bin())
    except FileNotFoundError as error:
        raise MachineError(
            "The Python package uv is installed without its program, which installs the packages "
            f"of every image. Run `pip install --force-reinstall uv=={version('uv')}`."
        ) from error


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        # The binary has 50 MB; installers replace it by another file, never write into it.
        target.hardlink_to(source)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
