"""``imgbuild lock``: resolve the packages of every image, or check the locks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli.options import ProjectOption, StackOption, open_project, option
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.project import Project

if TYPE_CHECKING:
    from imgbuild.dockerfile.requirements import LockFamily
    from imgbuild.settings import Sites

_STATES = {True: "written  ", False: "unchanged"}


def lock(
    stack: StackOption = None,
    check: Annotated[
        bool, option("--check", "Write nothing; exit 1 if a lock is not current.")
    ] = False,
    upgrade: Annotated[
        bool, option("--upgrade", "Take the newest versions that the matrix allows.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Resolve and hash the Python packages of every image into images/locks."""
    from imgbuild.dockerfile.requirements import lock_family
    from imgbuild.matrix.load import load_matrix
    from imgbuild.settings import Sites, load_settings

    if check and upgrade:
        raise InputError("--check writes nothing and --upgrade writes; give one of them.")
    opened = open_project(project)
    matrix = load_matrix(opened.matrix)
    family = lock_family(matrix, stack)
    if check:
        _check(family, opened)
    else:
        sites = Sites(matrix.upstream_urls, load_settings(opened.settings))
        _resolve(family, opened.locks, sites, upgrade=upgrade)


def _check(family: "LockFamily", project: Project) -> None:
    from imgbuild.dockerfile.conda import unlocked_packages
    from imgbuild.dockerfile.requirements import family_problems

    problems = family_problems(family, project.locks)
    if problems:
        lines = "\n".join(f"images/locks/{problem}" for problem in problems)
        raise CheckFailedError(f"Locks do not satisfy the matrix:\n{lines}\nRun `imgbuild lock`.")
    for note in unlocked_packages(family.pythons, project.locks):
        typer.echo(f"note: images/locks/{note}: their channel was not reached.")
    typer.echo(f"{len(family.requests) + len(family.pythons)} locks satisfy the matrix.")


def _resolve(family: "LockFamily", folder: Path, sites: "Sites", *, upgrade: bool) -> None:
    from imgbuild.dockerfile.conda import conda_lock_name, resolve_conda
    from imgbuild.dockerfile.requirements import index_environment, resolve, stale_locks

    environment = index_environment(sites)
    for request in family.requests:
        changed = resolve(request, folder, upgrade=upgrade, environment=environment)
        typer.echo(f"{_STATES[changed]}  {request.file_name}")
    for path in stale_locks(family, folder):
        path.unlink()
        typer.echo(f"deleted    {path.name}")
    for version, python in family.pythons.items():
        changed = resolve_conda(version, python, folder, sites, upgrade=upgrade)
        typer.echo(f"{_STATES[changed]}  {conda_lock_name(version)}")
