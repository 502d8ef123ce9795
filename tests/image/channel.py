"""A shell that stays open in each container: one `docker exec` for all commands, not one for each.

A `docker exec` costs 70 to 100 ms, a command through an open one 6 ms. Each command still runs in
a `/bin/sh -c` and a session of its own, with standard input from /dev/null and the environment that
`docker exec` gives, so that a suite cannot tell the difference.

What comes back on the shell's two streams is told apart by marks that no command knows:

    stdout   mark, b · the command's bytes · mark, exit code · mark, e
    stderr   the command's bytes · mark, e

The exit code is told when the command ends, the last marks when nobody holds its streams any more.
A process that it left in the background keeps them open: as `docker exec` does, the suites wait two
seconds for it, and then close that shell.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from testinfra.backend import BACKENDS  # type: ignore[import-untyped]
from testinfra.backend.docker import DockerBackend  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: For how long `docker exec` itself waits for streams that a background process holds, in seconds.
LINGERING_SECONDS = 2.0
#: How long a shell may take to end when its input does, and a client to say why it ended.
CLOSING_SECONDS = 2.0
READ_BYTES = 1 << 16
#: So many bytes a command may print; what prints more is stopped.
OUTPUT_LIMIT = 16 << 20
#: The exit code of a command whose shell ended without one: docker's own for "it was killed".
BROKEN = 137
FLOODED = f"the command was stopped, since it printed more than {OUTPUT_LIMIT >> 20} MiB"

# bash counts shells in SHLVL; both shells report a killed command on standard error.
PREPARE = b"exec 3>&1 4>&2 2>/dev/null; unset SHLVL OLDPWD; SETSID=$(command -v setsid)\n"
# Each stream goes through a `cat` of its own, which ends when nobody holds the stream any more.
# `setsid` as in `docker exec`: a command that signals its process group must not hit the shell.
COMMAND = """\
printf '%sb.' {mark} >&3
{{ {{ (exec $SETSID /bin/sh -c {command} </dev/null 2>&5 3>&- 4>&- 5>&-)
printf '%s%d.' {mark} $? >&3; }} | cat >&3 5>&-; }} 5>&1 | cat >&4
printf %se. {mark} >&3; printf %se. {mark} >&4
"""


@dataclass(frozen=True)
class Answer:
    """What a command left: exit code and both streams. `begun` is false if it never ran."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    begun: bool = True


class Shell:
    """One open shell; `argv` starts it. One command at a time."""

    def __init__(self, argv: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        self._write(PREPARE)
        #: Whether another command may use this shell.
        self.usable = True

    def run(self, command: bytes) -> Answer:
        """Return what the command left, and of a shell that did not survive it, why."""
        reading = _Reading(secrets.token_hex(16).encode())
        try:
            self._write(script(command, reading.mark.decode()))
            self._read(reading)
        except BaseException:  # an interrupt: what the command still says is nobody's answer
            self.usable = False
            raise
        if reading.size > OUTPUT_LIMIT:
            self.usable = False
            self.close()
            return Answer(BROKEN, b"", FLOODED.encode())
        if reading.exit_code is None:
            return self._post_mortem(reading)
        return Answer(reading.exit_code, bytes(reading.stdout), bytes(reading.stderr))

    def close(self) -> None:
        """End the shell and the client that talks to it; one that is busy is not waited for."""
        timeout = CLOSING_SECONDS if self.usable or self._process.poll() is not None else 0
        self.usable = False
        if self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    def _write(self, text: bytes) -> None:
        """Hand a command to the shell; that it has ended shows when its answer is read."""
        view = memoryview(text)
        with suppress(BrokenPipeError):
            while view and self._process.stdin:
                view = view[self._process.stdin.write(view) :]

    def _read(self, reading: _Reading) -> None:
        """Read until the command and its streams have ended, or its shell has."""
        poll = select.poll()
        streams = {}
        for name, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            if stream:
                poll.register(stream, select.POLLIN | select.POLLHUP)
                streams[stream.fileno()] = name
        while streams and not reading.whole:
            ready = poll.poll(reading.timeout())
            if not ready or reading.size > OUTPUT_LIMIT:
                self.usable = False
                return
            for number, _ in ready:
                data = os.read(number, READ_BYTES)
                if data:
                    reading.take(streams[number], data)
                else:
                    poll.unregister(number)
                    del streams[number]
        self.usable = self.usable and reading.whole

    def _post_mortem(self, reading: _Reading) -> Answer:
        """Return what had come, and in `stderr` that the shell is gone."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING_SECONDS)
        self.close()
        code = self._process.returncode
        said = bytes(reading.stderr).rstrip()
        fault = (
            f"the shell in the container ended before the command did (docker exec: exit code "
            f"{code}): the container ended, or the command killed its shell"
        )
        text = b"\n".join(filter(None, (said, fault.encode() if reading.begun else b"")))
        return Answer(code if code > 0 else BROKEN, bytes(reading.stdout), text, reading.begun)


@dataclass
class _Reading:
    """The two streams of one command, and what the marks in them tell."""

    mark: bytes
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    begun: bool = False
    exit_code: int | None = None
    _ended: set[str] = field(default_factory=set)
    _since: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether all that belongs to the command has come."""
        return len(self._ended) == len(("stdout", "stderr"))

    @property
    def size(self) -> int:
        return len(self.stdout) + len(self.stderr)

    def timeout(self) -> float | None:
        """Return for how many milliseconds more data is worth waiting for; None: without end."""
        if self.exit_code is None:
            return None
        left = self._since + LINGERING_SECONDS - time.monotonic()
        return max(left, 0.0) * 1000

    def take(self, name: str, data: bytes) -> None:
        """Add what a stream gave, and take the marks out of it. A mark may come in pieces."""
        stream: bytearray = getattr(self, name)
        start = max(len(stream) - len(self.mark) - len("255."), 0)
        stream += data
        while found := re.compile(re.escape(self.mark) + rb"(b|e|\d+)\.").search(stream, start):
            self._learn(name, found[1])
            start = found.start()
            del stream[start : found.end()]

    def _learn(self, name: str, news: bytes) -> None:
        if news == b"b":
            self.begun = True
        elif news == b"e":
            self._ended.add(name)
        else:
            self.exit_code, self._since = int(news), time.monotonic()


def script(command: bytes, mark: str) -> bytes:
    """Return what a shell is told to run one command, any bytes but NUL, and to mark its ends."""
    quoted = b"'" + command.replace(b"'", b"'\"'\"'") + b"'"
    before, _, after = COMMAND.format(command="\0", mark=mark).partition("\0")
    return before.encode() + quoted + after.encode()


class Shells:
    """The open shells, by container and user: as many of each as commands ran at once."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, ...], list[Shell]] = {}
        self._lock = threading.Lock()

    def run(self, argv: tuple[str, ...], command: bytes) -> Answer:
        """Return what the command left in a shell that `argv` starts, or has started before."""
        with self._shell(self._taken(argv) or Shell(argv), argv) as shell:
            answer = shell.run(command)
        if answer.begun:
            return answer
        # The shell had ended since its last command, with all processes of the container perhaps.
        with self._shell(Shell(argv), argv) as shell:
            return shell.run(command)

    def close(self) -> None:
        """End all shells; a command that comes later opens a new one."""
        with self._lock:
            shells = [shell for idle in self._idle.values() for shell in idle]
            self._idle.clear()
        for shell in shells:
            shell.close()

    def _taken(self, argv: tuple[str, ...]) -> Shell | None:
        with self._lock:
            idle = self._idle.get(argv)
            return idle.pop() if idle else None

    @contextmanager
    def _shell(self, shell: Shell, argv: tuple[str, ...]) -> Iterator[Shell]:
        """Give a shell to run one command in, and keep it if another can follow."""
        try:
            yield shell
        finally:
            if shell.usable:
                with self._lock:
                    self._idle.setdefault(argv, []).append(shell)
            else:
                shell.close()


SHELLS = Shells()


class ChannelBackend(DockerBackend):  # type: ignore[misc]
    """Testinfra's `docker://[USER@]CONTAINER`, its commands through open shells."""

    def run(self, command: str, *args: str, **_: Any) -> Any:
        """Return what a shell command left in the container, as testinfra's CommandResult."""
        encoded = self.encode(self.get_command(command, *args))
        user = ("--user", self.user) if self.user else ()
        argv = ("docker", "exec", "--interactive", *user, self.name, "/bin/sh")
        answer = SHELLS.run(argv, encoded)
        return self.result(answer.exit_code, encoded, answer.stdout, answer.stderr)


def use_channels() -> None:
    """Let testinfra take this backend for `docker://`, here and in `testinfra.get_host`."""
    BACKENDS["docker"] = f"{ChannelBackend.__module__}.{ChannelBackend.__qualname__}"
