"""``imgbuild lock``: resolve the packages of every image, or check the locks."""

from typing import Annotated

import typer

from imgbuild.cli.options import ProjectOption, StackOption, open_project, option
from imgbuild.errors import CheckFailedError, InputError


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
    from imgbuild.dockerfile import conda, requirements
    from imgbuild.matrix.load import load_matrix
    from imgbuild.settings import Sites, load_settings

    if check and upgrade:
        raise InputError("--check writes nothing and --upgrade writes; give one of them.")
    opened = open_project(project)
    matrix, folder = load_matrix(opened.matrix), opened.locks
    family = requirements.lock_family(matrix, stack)
    if check:
        problems = requirements.family_problems(family, folder)
        if problems:
            lines = "\n".join(f"images/locks/{problem}" for problem in problems)
            raise CheckFailedError(
                f"Locks do not satisfy the matrix:\n{lines}\nRun `imgbuild lock`."
            )
        for note in conda.unlocked_packages(family.pythons, folder):
            typer.echo(f"note: images/locks/{note}: their channel was not reached.")
        typer.echo(f"{len(family.requests) + len(family.pythons)} locks satisfy the matrix.")
        return
    sites = Sites(matrix.upstream_urls, load_settings(opened.settings))
    environment = requirements.index_environment(sites)
    for request in family.requests:
        changed = requirements.resolve(request, folder, upgrade=upgrade, environment=environment)
        typer.echo(f"{'written  ' if changed else 'unchanged'}  {request.file_name}")
    for path in requirements.stale_locks(family, folder):
        path.unlink()
        typer.echo(f"deleted    {path.name}")
    for version, python in family.pythons.items():
        changed = conda.resolve_conda(version, python, folder, sites, upgrade=upgrade)
        state = "written  " if changed else "unchanged"
        typer.echo(f"{state}  {conda.conda_lock_name(version)}")
