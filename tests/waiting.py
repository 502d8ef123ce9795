"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 60, what: str = "it") -> T:
    """Return what the condition gives as soon as that is true; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen in {seconds} s: {found!r}"
        time.sleep(0.05)
    return found


def processes(text: str) -> list[int]:
    """Return the processes whose command lines hold a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if text in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(path.parent.name))
    return found


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended and is not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    return "State:\tZ" not in status and "State:\tX" not in status
