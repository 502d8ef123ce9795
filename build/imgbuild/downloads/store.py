"""The store: files by their sha256. What is in it is whole and right, whoever was killed when."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from imgbuild.downloads.download import Download, file_sha256
from imgbuild.downloads.progress import SILENCE, Progress
from imgbuild.downloads.sites import Sites
from imgbuild.downloads.transfer import Way, transfer
from imgbuild.errors import MachineError

#: Every file of a store has this time, 1980-01-02, so that a layer with it is always the same.
FILE_TIME = 315619200


def stored_path(store: Path, sha256: str) -> Path:
    """Return where the file with this sha256 is, or would be."""
    return store / "sha256" / sha256[:2] / sha256


def find_stored(download: Download, store: Path, *, verify: bool = False) -> Path | None:
    """Return the file if the store has it; ``verify`` reads all of it."""
    path = stored_path(store, download.sha256)
    if not path.is_file() or download.size not in {None, path.stat().st_size}:
        return None
    return None if verify and file_sha256(path) != download.sha256 else path


def fetch(
    download: Download,
    store: Path,
    sites: Sites,
    progress: Progress = SILENCE,
    *,
    verify: bool = False,
) -> Path:
    """Return the path of the file in ``store``, fetched if it is not there.

    ``verify`` reads what is there and fetches it again if it was damaged. Interrupted, only a
    ``.part`` is left, which the next call continues. Another process that fetches the same file is
    waited for.

    Raises:
        CheckFailedError: what came is another file than its sha256 says.
        MachineError: it cannot be had, or the store cannot be written (permissions, disk full).

    """
    if verify and not find_stored(download, store, verify=True):
        stored_path(store, download.sha256).unlink(missing_ok=True)
    return fetch_by(download, store, Way(sites, progress))


def fetch_by(download: Download, store: Path, way: Way) -> Path:
    """Return the path of the file in ``store``; see :func:`fetch`."""

    def make(part: Path) -> None:
        size = transfer(download, part, way)
        way.progress.end(download, size)

    return put(download, store, make)


def put(download: Download, store: Path, make: Callable[[Path], None]) -> Path:
    """Return the path of the file in ``store``, made by ``make(part)`` if it is not there.

    Raises:
        MachineError: the store cannot be written (permissions, disk full).

    """
    final = stored_path(store, download.sha256)
    found = find_stored(download, store)
    if found:
        return found
    with _write_errors(download, store), _locked(final):
        if not find_stored(download, store):
            final.unlink(missing_ok=True)
            part = final.with_name(f"{final.name}.part")
            make(part)
            _settle(part, final)
    return final


def _settle(part: Path, final: Path) -> None:
    part.chmod(0o644)
    os.utime(part, (FILE_TIME, FILE_TIME))
    part.replace(final)


@contextmanager
def _locked(final: Path) -> Iterator[None]:
    """Hold the lock of one file; the kernel gives it back when the process dies, however."""
    final.parent.mkdir(parents=True, exist_ok=True)
    # It stays: removing it would let two processes lock two files of the same name.
    with final.with_name(f".{final.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _write_errors(download: Download, store: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"Cannot keep {download.file_name} in {store}: {error.strerror or error}. Free space "
            f"there (`df -h {store}`) and see that you may write to it; what has come so far is "
            "continued next time."
        ) from error
