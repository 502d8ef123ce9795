"""Run other programs, and end them when their caller ends or imgbuild is killed."""

import codecs
import math
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

#: A program that `start` started, and the exception of `Process.wait`.
Process = subprocess.Popen[str]
TimeoutExpired = subprocess.TimeoutExpired
#: Seconds between SIGTERM and SIGKILL. buildx needs them to stop the engine's running steps.
GRACE_SECONDS = 10.0
_SHORT_GRACE_SECONDS = 2.0
#: Exit codes: as in a shell, as in timeout(1), and for a program that printed too much.
NOT_FOUND, TIMED_OUT, FLOODED = 127, 124, 125
#: Limit for the output of a program, in bytes; more output means a fault or an attack.
OUTPUT_LIMIT = 16 << 20
#: Folders of daemons, which are often missing from the PATH of users other than root.
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
_CHUNK_BYTES = 65536
_which = cache(shutil.which)


@dataclass(frozen=True)
class Finished:
    code: int
    output: str = ""
    errors: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    def last(self, count: int = 3) -> str:
        """Return the last non-empty lines of output and errors, joined into one line."""
        lines = [line.strip() for line in f"{self.output}\n{self.errors}".splitlines()]
        lines = [line for line in lines if line]
        return " | ".join(lines[-count:]) or f"exit code {self.code}, no output"


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of a program; search the system folders after PATH."""
    path = environment.get("PATH", os.defpath)
    return shutil.which(name, path=f"{path}:{_SYSTEM_FOLDERS}")


def run(
    command: Sequence[str],
    *,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    text: str = "",
    cwd: Path | None = None,
) -> Finished:
    """Run a program to its end; ``text`` is its standard input, ``env`` its whole environment.

    The code is `NOT_FOUND` if the program does not exist. A program that takes longer than
    ``timeout`` seconds or prints more than `OUTPUT_LIMIT` bytes is stopped with its children. The
    code is then `TIMED_OUT` or `FLOODED`, and ``errors`` has the reason.
    """
    program = find_program(command[0], os.environ if env is None else env)
    if program is None:
        return Finished(NOT_FOUND, errors=f"{command[0]}: not found")
    words, pipe = [program, *command[1:]], subprocess.PIPE
    try:
        with start(
            words, env=env, cwd=cwd, stdin=pipe, errors=pipe, grace=_SHORT_GRACE_SECONDS
        ) as process:
            output, errors = _read_all(process, text, timeout)
            process.wait(timeout)
    except OverflowError:
        limit = OUTPUT_LIMIT >> 20
        return Finished(FLOODED, errors=f"stopped because it printed more than {limit} MiB")
    except TimeoutExpired:
        return Finished(TIMED_OUT, errors=f"no answer within {timeout:.0f} s")
    except OSError as error:
        return Finished(NOT_FOUND, errors=f"{command[0]}: {error.strerror}")
    return Finished(process.returncode, output, errors)


@contextmanager
def start(  # noqa: PLR0913 - what a program needs
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    output: IO[str] | int = subprocess.PIPE,
    errors: int = subprocess.STDOUT,
    pass_fds: Sequence[int] = (),
    grace: float = GRACE_SECONDS,
    leader_first: bool = False,
) -> Iterator[Process]:
    """Start a program in its own process group, and end the group when the block ends.

    Because the group is separate, Ctrl-C in a terminal reaches only this process. It then sends
    SIGTERM to the group, or with ``leader_first`` only to the program. After ``grace`` seconds, it
    sends SIGKILL to the rest of the group.
    """
    with subprocess.Popen(
        dies_with_parent(command),
        stdin=stdin,
        stdout=output,
        stderr=errors,
        env=None if env is None else dict(env),
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            yield process
        finally:
            _stop(process, grace, leader_first=leader_first)


def _stop(process: Process, grace: float, *, leader_first: bool) -> None:
    try:
        if process.poll() is None:
            process.terminate() if leader_first else _signal_group(process, signal.SIGTERM)
            # communicate() also drains the pipe, because a program that blocks on a write cannot
            # end.
            process.communicate(timeout=grace)
    except TimeoutExpired:
        pass
    finally:
        # Kill processes that outlived the program as well. For example, the kernel shields the
        # first process of a pid namespace from SIGTERM (pid_namespaces(7)).
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: Process, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def dies_with_parent(command: Sequence[str]) -> list[str]:
    """Wrap a command so that the kernel sends it SIGTERM when the thread that started it ends.

    The wrapper is setpriv(1) of util-linux, because Python's ``preexec_fn`` is not safe with
    threads. Without setpriv, the command is unchanged and survives a ``kill -9`` of imgbuild.
    Source: prctl(2), "PR_SET_PDEATHSIG".
    """
    setpriv = _which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--", *command] if setpriv else list(command)


def _read_all(process: Process, text: str, timeout: float | None) -> tuple[str, str]:
    """Send a program its input and return its output and errors.

    OverflowError: it printed more than `OUTPUT_LIMIT` bytes and was killed.
    """
    ends = math.inf if timeout is None else time.monotonic() + timeout
    stdin, process.stdin = process.stdin, None
    threading.Thread(target=_write_input, args=(stdin, text), daemon=True).start()
    outputs = {stream: bytearray() for stream in (process.stdout, process.stderr) if stream}
    with selectors.DefaultSelector() as selector:
        for stream in outputs:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = ends - time.monotonic()
            ready = selector.select(None if left == math.inf else max(left, 0))
            if not ready:
                raise TimeoutExpired(process.args, timeout or 0)
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK_BYTES)
                outputs[key.fileobj] += data  # type: ignore[index]  # it was registered as a stream
                if not data:
                    selector.unregister(key.fileobj)
            if sum(map(len, outputs.values())) > OUTPUT_LIMIT:
                process.kill()
                raise OverflowError
    output, errors = (data.decode(errors="replace") for data in outputs.values())
    return output, errors


def _write_input(stdin: IO[str] | None, text: str) -> None:
    with suppress(OSError), stdin or nullcontext():  # the program does not read, or has ended
        if stdin:
            stdin.write(text)


def read_lines(process: Process, seconds: float) -> Iterator[str | None]:
    """Yield the lines of a program's output, and ``None`` after ``seconds`` without output.

    A plain loop over the output would block forever if the program hangs. Nothing else may read the
    output before or at the same time.
    """
    if process.stdout is None:
        return
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(seconds):
                yield None
                continue
            data = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
            yield from lines
            if not data:
                break
    if rest:
        yield rest
