"""``imgbuild lock``: resolve the packages of every image, or check the locks."""

from pathlib import Path

from imgbuild.cli.options import PROJECT, STACK, echo, flag, info, open_project
from imgbuild.errors import CheckFailedError, InputError, MachineError


def lock(
    stack: str | None = STACK,
    check: bool = flag("--check", "Write nothing; exit 1 if a lock is not current."),
    upgrade: bool = flag("--upgrade", "Take the newest versions that the matrix allows."),
    project: Path | None = PROJECT,
) -> None:
    """Lock the Python packages of the images, with their hashes."""
    from imgbuild.dockerfile import conda, requirements
    from imgbuild.files import write_texts
    from imgbuild.matrix.load import load_matrix
    from imgbuild.settings import Sites, load_settings

    if check and upgrade:
        raise InputError("--check writes nothing and --upgrade writes; give one of them.")
    opened = open_project(project, writer="" if check else "lock")
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
            echo(f"note: images/locks/{note}: their channel was not reached.")
        echo(f"{len(family.requests) + len(family.pythons)} locks satisfy the matrix.")
        return
    sites = Sites(matrix.upstream_urls, load_settings(opened.settings))
    environment = requirements.index_environment(sites)
    texts, unread = dict[Path, str](), list[str]()
    for request in family.requests:
        info(f"resolving {request.file_name}")
        text = requirements.resolve(request, folder, upgrade=upgrade, environment=environment)
        texts[folder / request.file_name] = text
    for version, python in family.pythons.items():
        text, faults = conda.resolve_conda(version, python, folder, sites, upgrade=upgrade)
        texts[folder / conda.conda_lock_name(version)] = text
        unread += faults
    stale = requirements.stale_locks(family, folder)
    changed = write_texts(texts, stale)
    for path in texts:
        echo(f"{'written  ' if path in changed else 'unchanged'}  {path.name}")
    for path in stale:
        echo(f"deleted    {path.name}")
    if unread:
        raise MachineError(f"{' '.join(unread)} The lines of it in the locks stay as they are.")
