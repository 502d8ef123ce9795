"""Where mmdebstrap works: in memory where there is room, and gone afterwards."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from imgbuild.files import remove_tree

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (only used through mkdtemp)
_ROOM = 1 << 30  # bytes; a run was seen to need 0.3 GB at its widest


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Yield an empty folder for mmdebstrap to work in; it is gone afterwards.

    In memory where there is room, since dpkg writes and syncs thousands of small files; a TMPDIR
    the user has set wins. Folders of the same ``name`` left by a killed run are removed first, so
    the caller holds the lock of that name.
    """
    prefix = f"imgbuild-{os.getuid()}-{name}-"
    parent = _scratch_parent()
    for leftover in parent.glob(f"{prefix}*"):
        if leftover.lstat().st_uid == os.getuid():
            remove_tree(leftover)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        folder.chmod(0o755)  # without root, mmdebstrap works here under a subordinate id
        yield folder
    finally:
        remove_tree(folder)


def _scratch_parent() -> Path:
    if "TMPDIR" not in os.environ and _has_room(_SHARED_MEMORY):
        return _SHARED_MEMORY
    return Path(tempfile.gettempdir())


def _has_room(folder: Path) -> bool:
    """Whether ``folder`` can be written, programs may run from it, and disk and memory suffice."""
    if not os.access(folder, os.W_OK):
        return False
    status = os.statvfs(folder)
    free = min(status.f_bavail * status.f_frsize, _available_memory())
    return free >= _ROOM and not status.f_flag & os.ST_NOEXEC


def _available_memory() -> int:
    """Return the bytes the kernel can give without swapping (``MemAvailable``, proc(5))."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
