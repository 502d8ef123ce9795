"""``imgbuild lock``: resolve the packages of every image, or check that nothing moved."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli.options import ProjectOption, StackOption, open_project

if TYPE_CHECKING:
    from imgbuild.dockerfile.requirements import LockFamily
    from imgbuild.project import Project


def lock(
    stack: StackOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a lock is not current.")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Take the newest versions that the matrix allows.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Resolve and hash the Python packages of every image into images/locks."""
    from imgbuild.dockerfile.requirements import lock_family
    from imgbuild.errors import InputError
    from imgbuild.matrix.load import load_matrix

    if check and upgrade:
        raise InputError("--check writes nothing and --upgrade writes; give one of them.")
    opened = open_project(project)
    family = lock_family(load_matrix(opened.matrix), stack)
    if check:
        _check(family, opened.locks)
    else:
        _resolve(family, opened, upgrade=upgrade)


def _check(family: "LockFamily", folder: Path) -> None:
    from imgbuild.dockerfile.conda import find_conda_problems, find_unlocked
    from imgbuild.dockerfile.requirements import find_problems
    from imgbuild.errors import CheckFailedError

    problems = [
        *find_problems(family.requests, folder, family.names),
        *find_conda_problems(family.pythons, folder),
    ]
    if problems:
        lines = "\n".join(f"images/locks/{problem}" for problem in problems)
        raise CheckFailedError(f"Locks do not satisfy the matrix:\n{lines}\nRun `imgbuild lock`.")
    for note in find_unlocked(family.pythons, folder):
        typer.echo(f"note: images/locks/{note}: their channel was never asked.")
    typer.echo(f"{len(family.requests) + len(family.pythons)} locks satisfy the matrix.")


def _resolve(family: "LockFamily", project: "Project", *, upgrade: bool) -> None:
    from imgbuild.dockerfile.conda import conda_lock_name, resolve_conda
    from imgbuild.dockerfile.requirements import find_stale
    from imgbuild.dockerfile.resolve import index_environment, resolve
    from imgbuild.settings import load_settings
    from imgbuild.sites import make_sites

    folder, sites = (
        project.locks,
        make_sites(family.matrix.upstream_urls, load_settings(project.settings)),
    )
    environment = index_environment(sites)
    for request in family.requests:
        changed = resolve(request, folder, upgrade=upgrade, environment=environment)
        _say(changed, request.file_name)
    for path in find_stale(family.names, folder):
        path.unlink()
        typer.echo(f"deleted    {path.name}")
    for version, python in family.pythons.items():
        changed = resolve_conda(version, python, folder, sites, upgrade=upgrade)
        _say(changed, conda_lock_name(version))


def _say(changed: bool, name: str) -> None:
    typer.echo(f"{'written  ' if changed else 'unchanged'}  {name}")
