"""Copy the files that an extension's build reads into a folder of their own, its build context."""

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from imgbuild.core.errors import InputError
from imgbuild.core.files import link_or_copy

#: Source: Docker's documentation, "Build context".
IGNORED = ".dockerignore"


def source_path(source: str, folder: Path) -> Path:
    """Return the file or folder of a relative path below ``folder``, with links resolved.

    InputError: it does not exist, or a link leads out of the folder.
    """
    root = folder.resolve()
    try:
        path = (root / source).resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, until Python 3.12
        raise InputError(f"copy {source}: {folder} has no such file or folder.") from None
    if not path.is_relative_to(root):
        raise InputError(
            f"copy {source}: a symbolic link leads out of {folder}, to {path}. Copy the files into "
            "that folder."
        )
    return path


def copy_build_files(sources: Iterable[str], folder: Path, target: Path) -> None:
    """Copy files and folders from ``folder`` to the same paths below ``target``.

    The `.dockerignore` comes with them. Links within a copied folder stay links.

    InputError: a source does not exist, cannot be read, or a link leads out of ``folder``.
    """
    names = [*sources]
    if (folder / IGNORED).is_file():
        names.append(IGNORED)
    for name in names:
        path, place = source_path(name, folder), target / os.path.normpath(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            _copy(path, place, target.resolve())
        except OSError as error:
            raise InputError(
                f"copy {name}: {error.filename}: {error.strerror}. Make it a file that this user "
                "may read, or copy another folder."
            ) from error


def _copy(path: Path, place: Path, target: Path) -> None:
    """Copy a file, a link or a folder, unless it was copied already; skip sockets and devices."""
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        place.mkdir(exist_ok=True)
        for entry in path.iterdir():
            if entry != target:  # it can be below the folder that is copied
                _copy(entry, place / entry.name, target)
        shutil.copystat(path, place)
    elif os.path.lexists(place):
        return
    elif stat.S_ISLNK(mode):
        place.symlink_to(path.readlink())
    elif stat.S_ISREG(mode):
        link_or_copy(path, place)
