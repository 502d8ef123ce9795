"""A folder of the cache that is whole or absent: made beside its place, then renamed into it.

Two processes that want the same folder do not make it twice: the second waits and reuses. Work
that was killed leaves only a hidden folder, which the next start removes.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from imgbuild.errors import MachineError


def stored_folder(
    final: Path,
    make: Callable[[Path], None],
    is_whole: Callable[[Path], bool],
    *,
    refresh: bool = False,
    on_wait: Callable[[], None] | None = None,
) -> Path:
    """Return ``final``, made by ``make(empty folder)`` unless ``is_whole(final)`` already.

    ``refresh`` makes it again in any case; the old folder is replaced only when the new one is
    done. ``on_wait`` is called once if another process is at work on the same folder.

    Raises:
        MachineError: the cache cannot be written (permissions, disk full).

    """
    with _write_errors(final), _locked(final, on_wait):
        _remove_leftovers(final)
        if refresh or not is_whole(final):
            _make_beside(final, make)
    return final


def remove_tree(path: Path) -> None:
    """Remove ``path`` and all below it on the same file system; absent is fine.

    Files that belong to subordinate ids (mmdebstrap's, when it ran without root) are removed from
    inside a user namespace, as mmdebstrap(1) tells under "unshare".
    """
    remove = ["rm", "-rf", "--one-file-system", "--", str(path)]
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists() and not _succeeds_soon(remove) and shutil.which("mmdebstrap"):
        _succeeds(["mmdebstrap", "--unshare-helper", *remove])
        _succeeds(remove)


def _succeeds_soon(command: list[str]) -> bool:
    # A process that was just killed may write one more file into the folder.
    for _ in range(3):
        if _succeeds(command):
            return True
        time.sleep(0.1)
    return False


def _succeeds(command: list[str]) -> bool:
    # rm is where every system has it, even if PATH does not say so.
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{os.defpath}"}
    result = subprocess.run(command, env=environment, capture_output=True, check=False)
    return result.returncode == 0


def _make_beside(final: Path, make: Callable[[Path], None]) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=_prefix(final), dir=final.parent))
    try:
        fresh = temporary / "new"
        fresh.mkdir(mode=0o755)
        make(fresh)
        if final.exists() or final.is_symlink():
            final.rename(temporary / "old")
        fresh.rename(final)
    finally:
        remove_tree(temporary)


def _prefix(final: Path) -> str:
    return f".{final.name}.tmp-"


def _remove_leftovers(final: Path) -> None:
    # Under the lock, nobody else is at work on this name: what is there was left by a dead process.
    for leftover in final.parent.glob(f"{_prefix(final)}*"):
        remove_tree(leftover)


@contextmanager
def _locked(final: Path, on_wait: Callable[[], None] | None) -> Iterator[None]:
    """Hold the lock of ``final``; the kernel gives it back when the process dies, however."""
    final.parent.mkdir(parents=True, exist_ok=True)
    # The lock file stays: removing it would let two processes lock two files of the same name.
    with final.with_name(f".{final.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait:
                on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _write_errors(final: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"Cannot make {final}: {error.strerror or error} ({error.filename or final}). Free "
            f"space there (`df -h {final.parent}`) and see that you may write to it, or set "
            "XDG_CACHE_HOME to a folder with room."
        ) from error
