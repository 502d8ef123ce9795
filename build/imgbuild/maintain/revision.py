"""Read the files of a checkout at an earlier commit.

The files are read from git's objects. The work tree, the index and HEAD are not changed.
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

#: The files and folders that determine the input digests.
PARTS = ("matrix.yaml", "images")
_SECONDS = 120
#: Do not refresh the index, do not prompt, and use English messages.
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


@contextmanager
def open_revision(project: Project, reference: str) -> Iterator[Project]:
    """Extract the checkout at ``reference`` into a temporary folder.

    Only the current commit and its ancestors are accepted, because anybody can have written another
    fetched commit.

    InputError: there is no such revision, it is not in the history, or the folder is not a Git
        checkout.
    MachineError: git is not installed, or did not end in time.
    """
    if project.is_installed:
        raise InputError(
            f"{reference}: the files installed with imgbuild have no history. Run this command in "
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
        # List files below the root, which may be a subfolder of the repository.
        listing = _git(project.root, "ls-tree", "-z", "--name-only", commit, "--", *PARTS)
        parts = [name for name in listing.output.split("\0") if name]
        if parts:
            _extract_files(project.root, [commit, "--", *parts], checkout, reference)
        yield Project(checkout)


def resolve_commit(root: Path, reference: str) -> str:
    """Return the commit id of ``reference``.

    InputError: there is no such revision, or the folder is not a Git checkout.
    MachineError: git is not installed, or did not end in time.
    """
    inside = _git(root, "rev-parse", "--is-shallow-repository")
    if "dubious ownership" in inside.errors:
        raise InputError(
            f"{reference}: {root} belongs to another user, so git does not read it. Run `git "
            f"config --global --add safe.directory {root}`, or run this as that user."
        )
    if not inside.ok:
        raise InputError(f"{reference}: {root} is not a Git checkout ({inside.last()}).")
    name = f"{reference}^{{commit}}"
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    if commit.ok:
        return commit.output.strip()
    hint = (
        "This clone is shallow, so its history is missing. Run `git fetch --unshallow`."
        if inside.output.strip() == "true"
        else "If only a remote has it, run `git fetch`."
    )
    raise InputError(f"{reference}: this checkout has no such revision. {hint}")


def _extract_files(root: Path, files: list[str], checkout: Path, reference: str) -> None:
    archive = checkout.with_suffix(".tar")
    options = ("-c", "tar.umask=0022", "archive", "--format=tar", f"--output={archive}")
    made = _git(root, *options, *files)
    if not made.ok:
        raise InputError(
            f"{reference}: git cannot read the files of this revision ({made.last()}). If this is "
            "a clone with a filter, fetch them: `git fetch --refetch --no-filter`."
        )
    with tarfile.open(archive) as tar:
        # Python 3.11.2 in Debian 12 has no filters. git rejects "..", but not a folder below a
        # link.
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)
        links = {Path(member.name) for member in tar if not member.isreg() and not member.isdir()}
        for member in tar:
            if links.intersection(Path(member.name).parents):
                raise InputError(f"{reference}: {member.name} leads out of the revision's files.")
        tar.extractall(checkout)  # noqa: S202


def _git(root: Path, *arguments: str) -> Finished:
    env = {**os.environ, **_QUIET}
    result = run(["git", "-C", str(root), *arguments], env=env, timeout=_SECONDS)
    if result.code == NOT_FOUND:
        raise MachineError("git is not installed, but is needed for earlier revisions. Install it.")
    if result.code == TIMED_OUT:
        raise MachineError(
            f"git {arguments[0]} did not end within {_SECONDS} s; it may be waiting for a remote. "
            "Fetch the revision first, then try again."
        )
    return result
