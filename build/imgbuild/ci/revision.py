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

    Raises:
        InputError: there is no such revision here, or the folder is not a Git checkout.
        MachineError: there is no git.

    """
    commit = resolve(project.root, reference)
    with work_folder("revision") as folder:
        _extract(project.root, commit, folder, reference)
        yield Project(folder / "checkout")


def resolve(root: Path, reference: str) -> str:
    """Return the commit that ``reference`` means.

    Raises:
        InputError: it means none here, or the folder is not a Git checkout.
        MachineError: there is no git.

    """
    if not reference.strip():
        raise InputError("--changed-since is empty: name a Git revision, such as main or HEAD~1.")
    inside = _git(root, "rev-parse", "--git-dir")
    if not inside.ok:
        raise InputError(
            f"--changed-since {reference}: {root} is not a Git checkout ({_message(inside)})."
        )
    name = f"{reference}^{{commit}}"
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    if not found.ok:
        raise InputError(_unknown(root, reference))
    return found.output.strip()


def _unknown(root: Path, reference: str) -> str:
    shallow = _git(root, "rev-parse", "--is-shallow-repository").output.strip() == "true"
    why = (
        "This clone is shallow: its history was not fetched. Run `git fetch --unshallow`; in "
        "GitHub Actions give actions/checkout `fetch-depth: 0`, in GitLab CI set GIT_DEPTH to 0."
        if shallow
        else "Check its spelling; what only a remote has must be fetched (in CI: fetch-depth: 0)."
    )
    return f"--changed-since {reference}: git knows no such revision here. {why}"


def _extract(root: Path, commit: str, folder: Path, reference: str) -> None:
    """Write the files of a commit below ``root``, which may be a folder within the repository."""
    listed = _git(root, "ls-tree", "-z", "--name-only", commit, "--", *PARTS)
    parts = [name for name in listed.output.split("\0") if name]
    (folder / "checkout").mkdir()
    if not parts:
        return
    archive = folder / "files.tar"
    options = ("-c", "tar.umask=0022", "archive", "--format=tar", f"--output={archive}")
    made = _git(root, *options, commit, "--", *parts)
    if not made.ok:
        raise InputError(
            f"--changed-since {reference}: git cannot read the files there ({_message(made)}). If "
            "this is a clone with a filter, fetch them: `git fetch --refetch --no-filter`, in CI a "
            "clone with fetch-depth: 0 and no filter."
        )
    with tarfile.open(archive) as files:
        files.extractall(folder / "checkout", filter="tar")


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


def _message(result: Finished) -> str:
    lines = result.errors.strip().splitlines()
    return lines[0] if lines else f"exit status {result.code}"
