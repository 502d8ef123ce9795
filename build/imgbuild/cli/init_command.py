"""``imgbuild init``: a family of images of one's own, as a copy of the one that is in use."""

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
        raise InputError(f"{target} is in the family that would be copied. Name a folder outside.")
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is not a folder. Name one that is new or empty.")
    if there := next(target.iterdir(), None) if target.exists() else None:
        raise InputError(
            f"{target} is not empty: it holds {there.name}. Name one that is new or empty."
        )
    try:
        copy_family(source, target)
    except OSError as error:
        raise MachineError(
            f"Cannot make {target}: {error.strerror} ({error.filename}). Name a folder that this "
            "user may write, on a disk with space for it."
        ) from error
    echo(
        f"{target} has the images of {source}.\n"
        "Name your own `repository` in its matrix.yaml, change rows and pins there, then run\n"
        "imgbuild lock, render, build and test in it. `git init` gives it a history: without one\n"
        "images have no revision label."
    )


def copy_family(source: Path, target: Path) -> None:
    """Copy a family into an empty or new folder; an error leaves the folder as it was."""
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
    """Copy a file for its new owner to change, whoever may write the original."""
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)
    place.chmod(0o755 if os.access(file, os.X_OK) else 0o644)
