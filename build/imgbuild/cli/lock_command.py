"""``imgbuild lock``: resolve the packages of images, or check the locks."""

from imgbuild.cli.options import PROJECT, STACK, echo, flag, info, require_own, sites_of
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.text import count_text


def lock(
    stack: str | None = STACK,
    check: bool = flag("--check", "Write nothing; exit 1 if a lock does not satisfy the matrix."),
    refresh: bool = flag("--refresh", "Resolve all locks again, even if they satisfy the matrix."),
    upgrade: bool = flag(
        "--upgrade", "Like --refresh, but with the newest versions that the matrix allows."
    ),
    checkout: Project = PROJECT,
) -> None:
    """Lock the Python packages of the images with their hashes.

    By default, the command resolves only locks that are missing or do not satisfy the matrix.

    Example: imgbuild lock --check
    """
    from imgbuild.locks import conda, requirements
    from imgbuild.matrix.load import load_matrix

    if check and (refresh or upgrade):
        raise InputError("--check cannot be combined with --refresh or --upgrade.")
    matrix, folder = load_matrix(checkout.matrix), checkout.locks
    family = requirements.lock_family(matrix, stack)
    total = count_text(len(family.requests) + len(family.pythons), "lock")
    if check:
        problems = requirements.check_family(family, folder)
        if problems:
            lines = "\n".join(f"images/locks/{problem}" for problem in problems)
            raise CheckFailedError(
                f"These locks do not satisfy the matrix:\n{lines}\nRun `imgbuild lock`."
            )
        for note in conda.find_unlocked(family.pythons, folder):
            echo(f"note: images/locks/{note}, because their channel could not be reached.")
        echo(f"{total}: all satisfy the matrix.")
        return
    from imgbuild.build.source_metadata import MetadataReader

    require_own(checkout, "lock")
    sites = sites_of(checkout, matrix)
    scope: requirements.Scope = "upgrade" if upgrade else "all" if refresh else "stale"
    with MetadataReader(checkout, matrix, sites, info) as reader:
        changed, unread = requirements.write_locks(
            family,
            folder,
            sites,
            info,
            read_metadata=reader.read,
            read_requirements=reader.requirements,
            scope=scope,
        )
    for path in changed:
        echo(f"{'written' if path.exists() else 'deleted'}  {path.name}")
    echo(f"{total}, {len(changed)} changed.")
    if unread:
        raise MachineError(f"{' '.join(unread)} The lines of this channel did not change.")
