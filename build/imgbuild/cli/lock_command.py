"""``imgbuild lock``: resolve the packages of every image, or check the locks."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli.options import ProjectOption, StackOption, open_project, option
from imgbuild.errors import CheckFailedError, InputError, MachineError

if TYPE_CHECKING:
    from imgbuild.dockerfile.requirements import LockFamily
    from imgbuild.settings import Sites


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
    _resolve(family, folder, sites, upgrade=upgrade)


def _resolve(family: "LockFamily", folder: Path, sites: "Sites", *, upgrade: bool) -> None:
    """Resolve every lock in a copy of the folder, then write all that changed, or nothing."""
    from imgbuild.dockerfile import conda, requirements
    from imgbuild.files import work_folder

    environment = requirements.index_environment(sites)
    with work_folder("locks") as copy:
        for path in folder.glob("*.txt"):
            shutil.copy(path, copy)
        for request in family.requests:
            requirements.resolve(request, copy, upgrade=upgrade, environment=environment)
        try:
            for version, python in family.pythons.items():
                conda.resolve_conda(version, python, copy, sites, upgrade=upgrade)
        except MachineError:  # its lock says what is unlocked
            _take_over(family, copy, folder)
            raise
        _take_over(family, copy, folder)


def _take_over(family: "LockFamily", copy: Path, folder: Path) -> None:
    from imgbuild.dockerfile.conda import conda_lock_name
    from imgbuild.dockerfile.requirements import stale_locks
    from imgbuild.files import write_texts

    names = [one.file_name for one in family.requests]
    names += map(conda_lock_name, family.pythons)
    found = {name: (copy / name).read_bytes() for name in names if (copy / name).exists()}
    old = {name: (folder / name).read_bytes() for name in found if (folder / name).exists()}
    changed = {name: text.decode() for name, text in found.items() if old.get(name) != text}
    stale = stale_locks(family, folder)
    write_texts({folder / name: text for name, text in changed.items()}, stale)
    for name in found:
        typer.echo(f"{'written  ' if name in changed else 'unchanged'}  {name}")
    for path in stale:
        typer.echo(f"deleted    {path.name}")
