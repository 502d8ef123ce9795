"""Another revision of the checkout, read from git's objects alone.

Nothing is checked out: neither the work tree nor the index nor HEAD is touched or even looked at.
What digests are made of (`PARTS`) is written into a temporary folder, which is removed afterwards.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imgbuild.errors import InputError, MachineError
from imgbuild.files import work_folder
from imgbuild.project import Project

#: What decides the input digests of a checkout; ``pyproject.toml`` pins uv.
PARTS = ("matrix.yaml", "images", "pyproject.toml")
_EXECUTABLE, _LINK = "100755", "120000"
_SECONDS = 120
#: No refreshing of the index on the side, no question to a person, and English.
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


@dataclass(frozen=True)
class Entry:
    """One file of a tree: git's mode, the object that holds its content, its path."""

    mode: str
    object_id: str
    path: str


@contextmanager
def revision(project: Project, reference: str) -> Iterator[Project]:
    """Give the checkout as it was at ``reference``, in a folder that lives as long as the block.

    Raises:
        InputError: there is no such revision here, or the checkout is none of git.
        MachineError: there is no git.

    """
    commit = resolve(project.root, reference)
    with work_folder("revision") as folder:
        _write(project.root, _entries(project.root, commit), folder, reference)
        yield Project(folder)


def resolve(root: Path, reference: str) -> str:
    """Return the commit that ``reference`` means.

    Raises:
        InputError: it means none here, or the checkout is none of git.
        MachineError: there is no git.

    """
    if not reference.strip():
        raise InputError(
            "--changed-since is given nothing: name a revision of git, such as main or HEAD~1."
        )
    inside = _git(root, "rev-parse", "--git-dir")
    if inside.returncode:
        raise InputError(
            f"--changed-since {reference}: {root} is no checkout of git ({_said(inside)})."
        )
    wanted = f"{reference}^{{commit}}"
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", wanted)
    if found.returncode:
        raise InputError(_unknown(root, reference))
    return found.stdout.decode().strip()


def _unknown(root: Path, reference: str) -> str:
    shallow = _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
    why = (
        "This clone is shallow: its history was not fetched. Run `git fetch --unshallow`; in "
        "GitHub Actions give actions/checkout `fetch-depth: 0`, in GitLab CI set GIT_DEPTH to 0."
        if shallow
        else "Check its spelling; what only a remote has must be fetched (in CI: fetch-depth: 0)."
    )
    return f"--changed-since {reference}: git knows no such revision here. {why}"


def _entries(root: Path, commit: str) -> tuple[Entry, ...]:
    """Return the files of a commit below ``root``, which may be a folder within the repository."""
    listed = _git(root, "ls-tree", "-r", "-z", commit, "--", *PARTS)
    if listed.returncode:
        raise InputError(f"git cannot read the tree of {commit}: {_said(listed)}.")
    found = []
    for line in listed.stdout.decode("utf-8", "surrogateescape").split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, kind, object_id = facts.split()
            found += [Entry(mode, object_id, path)] if kind == "blob" else []
    return tuple(found)


def _write(root: Path, entries: Sequence[Entry], folder: Path, reference: str) -> None:
    for entry, content in zip(entries, _contents(root, entries, reference), strict=True):
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == _LINK:
            path.symlink_to(content.decode("utf-8", "surrogateescape"))
        else:
            path.write_bytes(content)
            path.chmod(0o755 if entry.mode == _EXECUTABLE else 0o644)


def _contents(root: Path, entries: Sequence[Entry], reference: str) -> Iterator[bytes]:
    """Yield the files' contents, all from one git. Source: git-cat-file(1), "Batch output"."""
    asked = "".join(f"{entry.object_id}\n" for entry in entries).encode()
    answer = _git(root, "cat-file", "--batch", asked=asked).stdout
    place = 0
    for entry in entries:
        end = answer.find(b"\n", place)
        words = answer[place:end].split()
        if end < 0 or len(words) != 3:
            raise InputError(
                f"--changed-since {reference}: git does not have the content of {entry.path} there "
                "(a clone with a filter?). Fetch it: `git fetch --refetch --no-filter`, in CI a "
                "clone with fetch-depth: 0 and no filter."
            )
        start, size = end + 1, int(words[2])
        yield answer[start : start + size]
        place = start + size + 1


def _git(root: Path, *arguments: str, asked: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            input=asked,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={**os.environ, **_QUIET},
        )
    except FileNotFoundError:
        raise MachineError("--changed-since asks git, and there is none. Install git.") from None
    except subprocess.TimeoutExpired:
        raise MachineError(
            f"git {arguments[0]} has not ended within {_SECONDS} s; it may wait for a remote. "
            "Fetch the revision first, then try again."
        ) from None


def _said(result: subprocess.CompletedProcess[bytes]) -> str:
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return lines[0] if lines else f"exit status {result.returncode}"
