"""Copy the files of an extension into a separate folder, the build context."""

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
    """Return the resolved path of a file or folder below ``folder``.

    InputError: it does not exist, or a symbolic link points outside the folder.
    """
    root = folder.resolve()
    try:
        path = (root / source).resolve(strict=True)
    except (OSError, RuntimeError):  # before Python 3.13, circular links raise RuntimeError
        raise InputError(f"copy {source}: {folder} has no such file or folder.") from None
    if not path.is_relative_to(root):
        raise InputError(
            f"copy {source}: a symbolic link leads out of {folder} to {path}. Copy the files into "
            "the folder."
        )
    return path


def copy_build_files(sources: Iterable[str], folder: Path, target: Path) -> None:
    """Copy files and folders from ``folder`` to the same paths below ``target``.

    Also copy `.dockerignore`. Links inside a copied folder stay links.

    InputError: a source does not exist, cannot be read, or is a link that leads out of ``folder``.
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
                f"copy {name}: {error.filename}: {error.strerror}. Make it readable for this user, "
                "or copy another folder."
            ) from error


def _copy(path: Path, place: Path, target: Path) -> None:
    """Copy a file, link or folder unless it already exists; skip sockets and devices."""
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        place.mkdir(exist_ok=True)
        for entry in path.iterdir():
            if entry != target:  # the target may be inside the copied folder
                _copy(entry, place / entry.name, target)
        shutil.copystat(path, place)
    elif os.path.lexists(place):
        return
    elif stat.S_ISLNK(mode):
        place.symlink_to(path.readlink())
    elif stat.S_ISREG(mode):
        link_or_copy(path, place)
