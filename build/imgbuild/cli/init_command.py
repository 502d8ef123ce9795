"""``imgbuild init``: copy the current family of images to start a new one."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import typer

from imgbuild.cli.options import PROJECT, echo
from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import PARTS, Project

_IGNORED = "/imgbuild.local.yaml\n__pycache__/\n"


def init(
    folder: Path = typer.Argument(metavar="DIR", help="New or empty folder.", show_default=False),
    checkout: Project = PROJECT,
) -> None:
    """Start your own family of images in DIR, as a copy.

    The command copies the matrix, locks, templates, Dockerfiles and suites of the current checkout.
    Outside a checkout, it copies the files of the installed imgbuild.

    Example: imgbuild init family
    """
    source, target = checkout.root, Path(os.path.realpath(folder))
    if target.is_relative_to(source):
        raise InputError(f"{target} is inside {source}, which is copied. Name a folder outside it.")
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is not a folder. Name a new or empty folder.")
    if there := next(target.iterdir(), None) if target.exists() else None:
        raise InputError(
            f"{target} is not empty: it contains {there.name}. Name a new or empty folder."
        )
    try:
        copy_family(source, target)
    except OSError as error:
        raise MachineError(
            f"Cannot create {target}: {error.strerror} ({error.filename}). Name a folder that you "
            "may write to, on a disk with enough space."
        ) from error
    echo(
        f"{target} is now a copy of {source}.\n"
        "Set your own `repository` in its matrix.yaml, and change rows and pins. Then run\n"
        "imgbuild lock, render, build and test in this folder. Run `git init` and commit, because\n"
        "images get a revision label only from a Git commit."
    )


def copy_family(source: Path, target: Path) -> None:
    """Copy a family into a new or empty folder; after an error, restore the folder."""
    missing = [place for place in (target, *target.parents) if not place.exists()]
    try:
        for part in PARTS:
            place = source / part
            files = (place, *place.rglob("*")) if place.is_dir() else (place,)
            for file in files:
                if file.is_file() and "__pycache__" not in file.parts:
                    _copy(file, target / file.relative_to(source))
        (target / ".gitignore").write_text(_IGNORED, encoding="utf-8")
    except BaseException:
        for left in missing[-1:] or [*target.iterdir()]:
            with suppress(OSError):
                left.unlink() if left.is_file() else shutil.rmtree(left)
        raise


def _copy(file: Path, place: Path) -> None:
    """Copy a file, and let the owner write the copy even if the original is read-only."""
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)
    place.chmod(0o755 if os.access(file, os.X_OK) else 0o644)
