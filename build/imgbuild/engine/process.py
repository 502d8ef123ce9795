"""Run a program so that nothing of it outlives the caller's interest in it."""

import codecs
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from imgbuild.process import dies_with_parent

#: How long a program may take to end by itself. buildx tells the engine to stop the running steps.
PATIENCE_SECONDS = 10.0
_CHUNK_BYTES = 65536


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
            dies_with_parent(command),
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


def lines_of(
    process: subprocess.Popen[str], wait: Callable[[], float | None]
) -> Iterator[str | None]:
    """Yield the lines of a program's output, and ``None`` when ``wait()`` seconds brought none.

    A program that hangs without a word would hold a plain loop over its output for ever. Nothing
    else may read the output before or meanwhile.
    """
    if process.stdout is None:
        return
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(wait()):
                yield None
                continue
            data = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
            yield from lines
            if not data:
                break
    if rest:
        yield rest


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
