"""What this machine remembers of its work: temporary folders, logs, verdicts, locks."""

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from imgbuild.cleaning.busy import is_held
from imgbuild.cleaning.disk import disk_size, half_removed, removed
from imgbuild.cleaning.finding import Finding
from imgbuild.cleaning.kinds import Kind
from imgbuild.files import remove_tree

#: How long logs and the verdicts on images that are gone are of use, in seconds.
OLD = 30 * 24 * 3600
#: The longest that mmdebstrap works, in seconds: its folder tells nobody's process.
LONG = 3600
#: A folder of `scratch_folder` for a base image: the user's id, the image, its recipe, 8 at random.
_SCRATCH = re.compile(r"imgbuild-[0-9]+-[a-z0-9.-]+-[0-9a-f]{12}-[a-z0-9_]{8}")


def find_work(state: Path, cache: Path) -> Iterator[Finding]:
    """Yield the temporary folders that killed processes left, each with its size."""
    for path in sorted({*_work_folders(state), *_half_made(cache), *half_removed(cache)}):
        yield _on_disk(Kind.WORK, path, "its process was killed")
    for path in _scratch():
        yield _on_disk(Kind.WORK, path, "mmdebstrap worked here, and was killed")


def find_logs(state: Path) -> Iterator[Finding]:
    """Yield the logs that are older than 30 days, as one."""
    yield from _together(Kind.LOGS, "older than 30 days", _old((state / "logs").glob("*.log")))


def find_reports(state: Path, images: Collection[str]) -> Iterator[Finding]:
    """Yield, as one, the old verdicts on images other than ``images`` (ids).

    Young ones stay: their image may be on another engine.
    """
    known = {image.removeprefix("sha256:") for image in images}
    gone = [path for path in (state / "reports").glob("*.json") if path.stem not in known]
    yield from _together(Kind.REPORTS, "their images are gone", _old(gone))


def find_locks(state: Path) -> Iterator[Finding]:
    """Yield, as one, the lock files that nobody holds."""
    free = [path for path in (state / "locks").glob("*.lock") if not is_held(path)]
    yield from _together(Kind.LOCKS, "no process holds them", free, unlock)


def unlock(path: Path) -> bool:
    """Remove a lock file while holding it, so that nobody holds what is no longer there."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        path.unlink(missing_ok=True)
    return True


def _work_folders(state: Path) -> Iterator[Path]:
    for path in (state / "work").glob("*"):
        owner = path.name.partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            yield path


def _half_made(cache: Path) -> Iterator[Path]:
    """Yield the folders that `stored_folder` had begun and nobody goes on with."""
    for path in cache.glob("*/.*.tmp-*"):
        lock = path.with_name(f"{path.name.rpartition('.tmp-')[0]}.lock")
        if not is_held(lock):
            yield path


def _scratch() -> Iterator[Path]:
    for parent in {Path("/dev/shm"), Path(tempfile.gettempdir())}:  # noqa: S108 (looked at only)
        for path in sorted(parent.glob(f"imgbuild-{os.getuid()}-*")):
            status = path.lstat()
            ours = status.st_uid == os.getuid() and _SCRATCH.fullmatch(path.name)
            if ours and status.st_mtime < time.time() - LONG:
                yield path


def _old(paths: Iterable[Path]) -> list[Path]:
    before = time.time() - OLD
    return [path for path in paths if path.stat().st_mtime < before]


def _on_disk(kind: Kind, path: Path, why: str) -> Finding:
    def remove() -> bool:
        remove_tree(path)
        return not path.exists()

    return Finding(kind, str(path), why, remove, disk_size(path), int(path.lstat().st_mtime))


def _together(
    kind: Kind, why: str, paths: Sequence[Path], remove: Callable[[Path], bool] = removed
) -> Iterator[Finding]:
    if not paths:
        return
    size = sum(disk_size(path) for path in paths)
    since = int(min(path.stat().st_mtime for path in paths))
    count = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    name = f"{count} in {paths[0].parent}"
    yield Finding(kind, name, why, lambda: min(map(remove, paths)), size, since)
