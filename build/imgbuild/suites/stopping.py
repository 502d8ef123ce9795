"""Ending pytest in order, from whichever thread an interrupt is noticed in."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: How long pytest may take to remove what its suites started, in seconds.
PATIENCE_SECONDS = 15.0


class StoppedError(Exception):
    """The run was interrupted while this image was tested."""


class Stop:
    """Knows the processes of a run, and ends them all when it is told to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def check(self) -> None:
        """Raise `StoppedError` if the run was stopped."""
        if self._stopped:
            raise StoppedError

    def stop(self) -> None:
        """Ask every process to end, and let none begin."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                _ask(process)

    @contextmanager
    def guarding(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Watch over a process, the leader of its group; it and its group end with the block."""
        with self._lock:
            self._processes.add(process)
            if self._stopped:
                _ask(process)
        try:
            yield
        finally:
            with self._lock:
                self._processes.discard(process)
            _end(process)


def _ask(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to pytest alone: its docker clients have to remove what there is."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        if process.poll() is None:
            _ask(process)
            process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what pytest left, and itself if it hangs
        process.wait()
