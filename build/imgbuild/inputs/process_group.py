"""A long-running program that never outlives us, and whose every line is kept."""

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from imgbuild.process import dies_with_parent

_GRACE = 10.0  # seconds for the group to end by itself
_LAST_LINES = 20


@dataclass(frozen=True)
class Listener:
    """Who hears what a program says."""

    log: Path
    """Gets every line; written anew by each run."""
    on_line: Callable[[str], None] | None = None
    """Called with each line as it comes, without its line end."""


def run_group(
    command: list[str], environment: dict[str, str], listener: Listener
) -> tuple[int, list[str]]:
    """Return the exit status and the last lines of ``command``.

    It has a process group of its own, which is gone when this function is left, whether by
    result, error, Ctrl-C or SIGTERM.
    """
    last: deque[str] = deque(maxlen=_LAST_LINES)
    listener.log.parent.mkdir(parents=True, exist_ok=True)
    with _sigterm_raises(), listener.log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            dies_with_parent(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            for line in process.stdout or ():
                out.write(line)
                out.flush()
                last.append(line.rstrip())
                if listener.on_line:
                    listener.on_line(line.rstrip())
            return process.wait(), list(last)
        finally:
            _end_group(process)


def _end_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
            process.wait(_GRACE)
    # Also what outlived its leader: apt's children, and the first process of the namespace, which
    # the kernel shields from SIGTERM (pid_namespaces(7)).
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM unwind the stack, as Ctrl-C does, unless the program has a say of its own."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
