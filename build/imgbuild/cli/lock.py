"""``imgbuild lock``: resolve the packages of every image, or check that nothing moved."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli.options import ProjectOption, open_project

if TYPE_CHECKING:
    from imgbuild.locks.request import LockRequest


def lock(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a lock no longer fits.")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Take newer versions where the matrix allows them.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Resolve and hash every Python package of every image into images/locks."""
    from imgbuild.errors import InputError
    from imgbuild.locks.request import lock_requests
    from imgbuild.matrix.image import all_images
    from imgbuild.matrix.load import load_matrix

    if check and upgrade:
        raise InputError("--check writes nothing and --upgrade writes; give one of them.")
    opened = open_project(project)
    requests = lock_requests(all_images(load_matrix(opened.matrix)))
    if check:
        _check(requests, opened.locks)
    else:
        _resolve(requests, opened.locks, upgrade=upgrade)


def _check(requests: tuple["LockRequest", ...], folder: Path) -> None:
    from imgbuild.errors import CheckFailedError
    from imgbuild.locks.check import find_problems

    problems = find_problems(requests, folder)
    if problems:
        lines = "\n".join(f"images/locks/{problem}" for problem in problems)
        raise CheckFailedError(f"Locks do not satisfy the matrix:\n{lines}\nRun `imgbuild lock`.")
    typer.echo(f"{len(requests)} locks satisfy the matrix.")


def _resolve(requests: tuple["LockRequest", ...], folder: Path, *, upgrade: bool) -> None:
    from imgbuild.locks.check import find_stale
    from imgbuild.locks.resolve import resolve

    for request in requests:
        changed = resolve(request, folder, upgrade=upgrade)
        typer.echo(f"{'written  ' if changed else 'unchanged'}  {request.file_name}")
    for path in find_stale(requests, folder):
        path.unlink()
        typer.echo(f"deleted    {path.name}")
