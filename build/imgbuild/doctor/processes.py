"""Processes of this machine, by what they are: a number alone may by now be another program."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def command_line(pid: int) -> tuple[str, ...]:
    """Return the words that started a process; empty if there is no such process (or a zombie)."""
    with suppress(OSError):
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        return tuple(word.decode(errors="replace") for word in words if word)
    return ()


def find_processes(matches: Callable[[tuple[str, ...]], bool]) -> list[int]:
    """Return the processes whose command line ``matches``."""
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if matches(command_line(pid))]


def with_descendants(pids: Sequence[int]) -> list[int]:
    """Return ``pids`` and every process below them, the deepest last."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(entry), []).append(int(entry.name))
    found = list(pids)
    for pid in found:
        found += [child for child in children.get(pid, []) if child not in found]
    return found


def end(pid: int, *, patience: float) -> None:
    """End a process: SIGTERM, and SIGKILL if it is still there after ``patience`` seconds.

    The process is held by a file descriptor, so that its number cannot pass to another one.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            if _is_gone(pid, seconds):
                return
    finally:
        os.close(handle)


def kill(pids: Sequence[int]) -> None:
    """End processes at once."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_gone(pid: int, seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while command_line(pid):
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def _parent(entry: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        # The name (second field) is in parentheses and may hold anything, spaces too.
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0
