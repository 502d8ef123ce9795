"""Run a program so that nothing of it outlives the caller's interest in it."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

#: How long a program may take to end by itself. buildx tells the engine to stop the running steps.
PATIENCE_SECONDS = 10.0


@contextmanager
def running(
    command: Sequence[str], env: Mapping[str, str], patience: float = PATIENCE_SECONDS
) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a process group of its own; its output and errors are one stream.

    Its own group, so that a terminal's Ctrl-C reaches this process only, which then ends the
    program in order: SIGTERM, and SIGKILL after ``patience`` seconds. The exception goes on.
    """
    with _terminable():
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            yield process
        finally:
            end(process, patience)


def end(process: subprocess.Popen[str], patience: float = PATIENCE_SECONDS) -> None:
    """End a process group and wait for its leader; does nothing if it has ended already."""
    if process.poll() is None:
        try:
            _signal_group(process, signal.SIGTERM)
            # communicate() also drains the pipe: a program that blocks on writing cannot end.
            process.communicate(timeout=patience)
        except BaseException as error:
            _signal_group(process, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
    if process.stdout:
        process.stdout.close()


def _signal_group(process: subprocess.Popen[str], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM and SIGHUP exceptions, as Ctrl-C is one; otherwise they skip all clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:  # nohup's SIG_IGN and a caller's own handler stay
            signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # the shell's code for a program that a signal ended
