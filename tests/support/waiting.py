"""Waiting for what another process or thread does."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 60, what: str = "it") -> T:
    """Return what the condition gives as soon as that is true; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen in {seconds} s: {found!r}"
        time.sleep(0.05)
    return found


def command_lines() -> Iterator[tuple[int, str]]:
    """Yield each process of this machine, those in containers too, with its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield int(path.parent.name), text


def processes(text: str) -> list[int]:
    """Return the processes whose command lines hold a text."""
    return [pid for pid, line in command_lines() if text in line]


@contextmanager
def seen_arguments() -> Iterator[set[str]]:
    """Give a set that is filled with the arguments of every process that is seen meanwhile."""
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            seen.update(line for _, line in command_lines())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended and is not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    return "State:\tZ" not in status and "State:\tX" not in status
