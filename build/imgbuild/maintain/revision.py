"""Read the files of a checkout as they were at an earlier commit.

They come from git's objects: neither the work tree nor the index nor HEAD is touched.
"""

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import work_folder
from imgbuild.core.process import NOT_FOUND, TIMED_OUT, Finished, run
from imgbuild.core.project import Project

#: The files and folders that decide the input digests of a checkout.
PARTS = ("matrix.yaml", "images")
_SECONDS = 120
#: No refreshing of the index, no question to a person, and English.
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


@contextmanager
def open_revision(project: Project, reference: str) -> Iterator[Project]:
    """Give the checkout as it was at ``reference``, in a folder that lives as long as the block.

    Only the current commit and those before it count: anybody may have written one that was
    fetched.

    InputError: there is no such revision here, it is not in the history, or the folder is not a
        Git checkout.
    MachineError: there is no git.
    """
    if project.is_installed:
        raise InputError(
            f"{reference}: the family that is installed with imgbuild has no history. Run this in "
            "a Git checkout that has the revision."
        )
    commit = resolve_commit(project.root, reference)
    if not _git(project.root, "merge-base", "--is-ancestor", commit, "HEAD").ok:
        raise InputError(
            f"{reference}: {commit} is not in the history of this checkout. If you trust its "
            "files, check it out."
        )
    with work_folder("revision") as folder:
        checkout = folder / "checkout"
        checkout.mkdir()
        # Below the root, which may be a folder within the repository.
        listing = _git(project.root, "ls-tree", "-z", "--name-only", commit, "--", *PARTS)
        parts = [name for name in listing.output.split("\0") if name]
        if parts:
            _extract_files(project.root, [commit, "--", *parts], checkout, reference)
        yield Project(checkout)


def resolve_commit(root: Path, reference: str) -> str:
    """Return the commit that ``reference`` means.

    InputError: it means none here, or the folder is not a Git checkout.
    MachineError: there is no git.
    """
    inside = _git(root, "rev-parse", "--is-shallow-repository")
    if "dubious ownership" in inside.errors:
        raise InputError(
            f"{reference}: {root} belongs to another user, so that git does not read it. Run `git "
            f"config --global --add safe.directory {root}`, or be that user."
        )
    if not inside.ok:
        raise InputError(f"{reference}: {root} is not a Git checkout ({inside.last()}).")
    name = f"{reference}^{{commit}}"
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    if commit.ok:
        return commit.output.strip()
    hint = (
        "This clone is shallow: its history was not fetched. Run `git fetch --unshallow`."
        if inside.output.strip() == "true"
        else "If only a remote has it, run `git fetch`."
    )
    raise InputError(f"{reference}: git knows no such revision here. {hint}")


def _extract_files(root: Path, files: list[str], checkout: Path, reference: str) -> None:
    archive = checkout.with_suffix(".tar")
    options = ("-c", "tar.umask=0022", "archive", "--format=tar", f"--output={archive}")
    made = _git(root, *options, *files)
    if not made.ok:
        raise InputError(
            f"{reference}: git cannot read the files there ({made.last()}). If this is a clone "
            "with a filter, fetch them: `git fetch --refetch --no-filter`."
        )
    with tarfile.open(archive) as tar:
        # Debian 12's Python 3.11.2 has no filters. git refuses "..", but not a folder below a link.
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)
        links = {Path(member.name) for member in tar if not member.isreg() and not member.isdir()}
        for member in tar:
            if links.intersection(Path(member.name).parents):
                raise InputError(f"{reference}: {member.name} leads out of the files there.")
        tar.extractall(checkout)  # noqa: S202


def _git(root: Path, *arguments: str) -> Finished:
    env = {**os.environ, **_QUIET}
    result = run(["git", "-C", str(root), *arguments], env=env, timeout=_SECONDS)
    if result.code == NOT_FOUND:
        raise MachineError("There is no git, which reads earlier revisions. Install git.")
    if result.code == TIMED_OUT:
        raise MachineError(
            f"git {arguments[0]} has not ended within {_SECONDS} s; it may wait for a remote. "
            "Fetch the revision first, then try again."
        )
    return result
