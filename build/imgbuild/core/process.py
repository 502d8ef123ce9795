"""Run other programs so that they end with the caller, and with imgbuild when it is killed."""

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

#: A program that `start` started, and what `Process.wait` raises.
Process = subprocess.Popen[str]
TimeoutExpired = subprocess.TimeoutExpired
#: Seconds between SIGTERM and SIGKILL. buildx uses them to stop the engine's running steps.
GRACE_SECONDS = 10.0
_SHORT_GRACE_SECONDS = 2.0
#: The exit codes of a shell and of timeout(1), and the one of a program that printed too much.
NOT_FOUND, TIMED_OUT, FLOODED = 127, 124, 125
#: So many bytes a program may print; what prints more is wrong, or means harm.
OUTPUT_LIMIT = 16 << 20
#: Daemons live here, and users other than root often lack it in PATH.
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
        """Return the last lines of output and errors that are not empty, as one line."""
        lines = [line.strip() for line in f"{self.output}\n{self.errors}".splitlines()]
        lines = [line for line in lines if line]
        return " | ".join(lines[-count:]) or f"exit code {self.code}, no output"


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of a program, also of those that only root has in PATH."""
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

    A program that is not there gives `NOT_FOUND`; one that takes longer than ``timeout`` seconds,
    or prints more than `OUTPUT_LIMIT`, is ended with its children and gives `TIMED_OUT` or
    `FLOODED`, with the reason in ``errors``.
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
        return Finished(FLOODED, errors=f"stopped, since it printed more than {limit} MiB")
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
    """Start a program in its own process group, which has ended when the block is left.

    Its own group, so that a terminal's Ctrl-C reaches only this process, which then sends SIGTERM
    (to the group, or with ``leader_first`` to the program alone), and after ``grace`` seconds
    SIGKILL to what is left of the group.
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
            # communicate() also drains the pipe: a program that blocks on writing cannot end.
            process.communicate(timeout=grace)
    except TimeoutExpired:
        pass
    finally:
        # Also what outlived its leader, such as the first process of a pid namespace, which the
        # kernel shields from SIGTERM (pid_namespaces(7)).
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: Process, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def dies_with_parent(command: Sequence[str]) -> list[str]:
    """Return the command so that the kernel sends it SIGTERM when the thread that started it ends.

    Through setpriv(1) of util-linux, since Python's ``preexec_fn`` is not safe beside threads.
    Without setpriv the command stays as it is, and survives a ``kill -9`` of imgbuild. Source:
    prctl(2), "PR_SET_PDEATHSIG".
    """
    setpriv = _which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--", *command] if setpriv else list(command)


def _read_all(process: Process, text: str, timeout: float | None) -> tuple[str, str]:
    """Give a program its input and return what it prints on both streams.

    OverflowError: that is more than `OUTPUT_LIMIT`; the program is killed.
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
    with suppress(OSError), stdin or nullcontext():  # it does not read, or has ended
        if stdin:
            stdin.write(text)


def read_lines(process: Process, seconds: float) -> Iterator[str | None]:
    """Yield the lines of a program's output, and ``None`` after ``seconds`` without output.

    A program that hangs without a word would hold a plain loop over its output for ever. Nothing
    else may read the output before or meanwhile.
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
