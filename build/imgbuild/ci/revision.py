"""Read another revision of the checkout from git, without a checkout.

Neither the work tree nor the index nor HEAD is touched. The files that decide input digests
(`PARTS`) are written into a temporary folder.
"""

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imgbuild.errors import InputError, MachineError
from imgbuild.files import work_folder
from imgbuild.process import NOT_FOUND, TIMED_OUT, Finished, run
from imgbuild.project import Project

#: What decides the input digests of a checkout; ``pyproject.toml`` pins uv.
PARTS = ("matrix.yaml", "images", "pyproject.toml")
_SECONDS = 120
#: No refreshing of the index, no question to a person, and English.
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


@contextmanager
def revision(project: Project, reference: str) -> Iterator[Project]:
    """Give the checkout as it was at ``reference``, in a folder that lives as long as the block.

    InputError: there is no such revision here, or the folder is not a Git checkout.
    MachineError: there is no git.
    """
    if project.is_installed:
        raise InputError(
            f"--changed-since {reference}: the family that is installed with imgbuild has no "
            "history. Run it in a checkout: `imgbuild init DIR` makes one, `git init` its history."
        )
    commit = resolve(project.root, reference)
    with work_folder("revision") as folder:
        checkout = folder / "checkout"
        checkout.mkdir()
        # Below the root, which may be a folder within the repository.
        listed = _git(project.root, "ls-tree", "-z", "--name-only", commit, "--", *PARTS)
        parts = [name for name in listed.output.split("\0") if name]
        if parts:
            _extract(project.root, [commit, "--", *parts], checkout, reference)
        yield Project(checkout)


def resolve(root: Path, reference: str) -> str:
    """Return the commit that ``reference`` means.

    InputError: it means none here, or the folder is not a Git checkout.
    MachineError: there is no git.
    """
    inside = _git(root, "rev-parse", "--is-shallow-repository")
    if "dubious ownership" in inside.errors:
        raise InputError(
            f"--changed-since {reference}: {root} belongs to another user, so that git does not "
            f"read it. Run `git config --global --add safe.directory {root}`, or be that user."
        )
    if not inside.ok:
        raise InputError(
            f"--changed-since {reference}: {root} is not a Git checkout ({inside.last()})."
        )
    name = f"{reference}^{{commit}}"
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    if found.ok:
        return found.output.strip()
    why = (
        "This clone is shallow: its history was not fetched. Run `git fetch --unshallow`; in "
        "GitHub Actions give actions/checkout `fetch-depth: 0`, in GitLab CI set GIT_DEPTH to 0."
        if inside.output.strip() == "true"
        else "Check its spelling; what only a remote has must be fetched (in CI: fetch-depth: 0)."
    )
    raise InputError(f"--changed-since {reference}: git knows no such revision here. {why}")


def _extract(root: Path, files: list[str], checkout: Path, reference: str) -> None:
    archive = checkout.with_suffix(".tar")
    options = ("-c", "tar.umask=0022", "archive", "--format=tar", f"--output={archive}")
    made = _git(root, *options, *files)
    if not made.ok:
        raise InputError(
            f"--changed-since {reference}: git cannot read the files there ({made.last()}). If "
            "this is a clone with a filter, fetch them: `git fetch --refetch --no-filter`, in CI a "
            "clone with fetch-depth: 0 and no filter."
        )
    with tarfile.open(archive) as tar:
        # Debian 12's Python 3.11.2 has no filters; it is git's own archive.
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)
        tar.extractall(checkout)  # noqa: S202


def _git(root: Path, *arguments: str) -> Finished:
    env = {**os.environ, **_QUIET}
    result = run(["git", "-C", str(root), *arguments], env=env, timeout=_SECONDS)
    if result.code == NOT_FOUND:
        raise MachineError("--changed-since needs git, and there is none. Install git.")
    if result.code == TIMED_OUT:
        raise MachineError(
            f"git {arguments[0]} has not ended within {_SECONDS} s; it may wait for a remote. "
            "Fetch the revision first, then try again."
        )
    return result
