"""One digest for a folder: what is in it, and nothing about when or by whom it was written."""

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path


def tree_digest(tree: Path) -> str:
    """Return the sha256 (``sha256:…``) over sorted paths, modes, link targets and contents."""
    return _digest(tree, lambda path, _status: _content(path))


def tree_fingerprint(tree: Path) -> str:
    """Return a digest over sizes and times instead of contents: a hundredth of the work.

    It tells whether a folder that was digested once has been touched since.
    """
    return _digest(tree, lambda _path, status: f"{status.st_size} {status.st_mtime_ns}".encode())


def set_times(tree: Path, epoch: int) -> None:
    """Give everything in ``tree``, and itself, the time ``epoch`` (seconds)."""
    for path in [tree, *tree.rglob("*")]:
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def _digest(tree: Path, describe: Callable[[Path, os.stat_result], bytes]) -> str:
    whole = hashlib.sha256()
    for path in sorted(tree.rglob("*"), key=lambda path: path.relative_to(tree).as_posix()):
        status = path.lstat()
        whole.update(_heading(path.relative_to(tree), status))
        if stat.S_ISLNK(status.st_mode):
            whole.update(os.fsencode(path.readlink()) + b"\0")
        elif stat.S_ISREG(status.st_mode):
            whole.update(describe(path, status) + b"\0")
    return f"sha256:{whole.hexdigest()}"


def _heading(name: Path, status: os.stat_result) -> bytes:
    return f"{name.as_posix()}\0{status.st_mode:o}\0".encode(errors="surrogateescape")


def _content(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()
