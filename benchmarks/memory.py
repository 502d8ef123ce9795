"""Peak memory of a process tree, without the programs of Docker that it calls.

Every few milliseconds /proc is read: the resident set of the command and of its descendants is
added up, and the largest sum is kept. A peak between two looks is seen for the command itself all
the same, by its VmHWM. Pages that two processes share are counted twice.
"""

import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

#: Programs of other people; imgbuild only waits for them.
OTHERS = frozenset({"docker", "docker-buildx", "dockerd", "runc", "git"})
#: A child with its parent's command line that is seen so often is a worker and no passing copy.
LOOKS = 4


class TreeWatch:
    """Looks at a process tree until it is stopped."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._peak = 0
        self._seen: Counter[int] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """End it and return the largest sum in bytes."""
        self._ended.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        while not self._ended.wait(self._seconds):
            pids = tree(self._pid)
            self._seen.update(pids)
            sizes = [status_bytes(pid, "VmRSS") for pid in pids if self._counts(pid)]
            self._peak = max(self._peak, sum(sizes), status_bytes(self._pid, "VmHWM"))

    def _counts(self, pid: int) -> bool:
        alike = pid != self._pid and _command_line(pid) == _command_line(self._pid)
        return not alike or self._seen[pid] >= LOOKS


def tree(pid: int) -> list[int]:
    """Return a process and its descendants, without Docker's programs and what those started."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        if _name(one) in OTHERS:
            continue
        found.append(one)
        todo.extend(_children(one))
    return found


def status_bytes(pid: int, key: str) -> int:
    """Return one size of /proc/PID/status in bytes; 0 if the process is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    return ""


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found
