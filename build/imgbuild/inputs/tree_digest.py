"""One digest for a folder: what is in it, and nothing about when or by whom it was written."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
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


def _digest(tree: Path, describe: Callable[[str, os.stat_result], bytes]) -> str:
    whole = hashlib.sha256()
    for name in sorted(_names(str(tree), "")):
        path = os.path.join(tree, name)  # noqa: PTH118 - thousands of files: Path takes a third
        status = os.lstat(path)
        whole.update(_heading(name, status))
        if stat.S_ISLNK(status.st_mode):
            whole.update(os.fsencode(os.readlink(path)) + b"\0")  # noqa: PTH115 - as above
        elif stat.S_ISREG(status.st_mode):
            whole.update(describe(path, status) + b"\0")
    return f"sha256:{whole.hexdigest()}"


def _names(folder: str, prefix: str) -> Iterator[str]:
    """Yield everything below ``folder``, by path from the top; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _names(entry.path, f"{prefix}{entry.name}/")


def _heading(name: str, status: os.stat_result) -> bytes:
    return f"{name}\0{status.st_mode:o}\0".encode(errors="surrogateescape")


def _content(path: str) -> bytes:
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()
