"""Who is at work: the locks that processes of this user hold now."""

import fcntl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock file."""
    with suppress(OSError), lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def held_locks(folder: Path) -> Iterator[Path]:
    """Yield the held lock files in ``folder`` and below."""
    if folder.is_dir():
        yield from (path for path in sorted(folder.rglob("*.lock")) if is_held(path))


def busy_images(state: Path) -> dict[str, str]:
    """Return the process ids, by lock file, of builds and tests that run now."""
    return {path.stem: _owner(path) for path in held_locks(state / "locks")}


def worker_on(name: str, busy: dict[str, str]) -> str | None:
    """Return the process that builds or tests the named image, on whichever engine."""
    return next((pid for stem, pid in busy.items() if stem.endswith(f"-{name}")), None)


def _owner(lock: Path) -> str:
    try:
        return lock.read_text(encoding="utf-8").strip() or "unknown"
    except OSError:
        return "unknown"
