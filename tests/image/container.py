"""The container under test: run a command in it with a limit, and read what it printed.

Testinfra's backends have no time limit and do not fail on a command that fails; here both are
added. The two protocols are the part of testinfra that the suites use; testinfra has no type
information of its own.
"""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from limits import allowed
from out_of_time import ENDED_BY_CLOCK, KILLED, out_of_time

LINES_SHOWN = 40
SECONDS_TO_DIE = 5


class CommandResult(Protocol):
    """What testinfra returns for a command."""

    @property
    def rc(self) -> int:
        """Return the exit code."""
        ...

    @property
    def stdout(self) -> str:
        """Return standard output, decoded."""
        ...

    @property
    def stderr(self) -> str:
        """Return standard error, decoded."""
        ...


class Host(Protocol):
    """Testinfra's host, on whichever backend `--hosts` names."""

    def run(self, command: str, *args: str) -> CommandResult:
        """Run a shell command in the container."""
        ...


@dataclass(frozen=True)
class Ran:
    """A command that has ended, well or not.

    Fixtures hand this on and tests ask it for its output, so that a command that failed makes
    the tests *fail* that depend on it, with the command's own words: in full the first time, for
    many tests may depend on one command.
    """

    command: str
    seconds: int
    exit_code: int
    stdout: str
    stderr: str
    #: How long it ran, in seconds, as far as it was measured.
    took: float = 0.0
    shown: list[str] = field(default_factory=list, compare=False)

    @property
    def failed(self) -> bool:
        """Return whether the command ended badly; what builds on it need not run then."""
        return self.exit_code != 0

    @property
    def timed_out(self) -> bool:
        """Return whether the command was stopped by its limit, or gave up waiting itself."""
        late = self.took >= self.seconds
        return self.exit_code in ENDED_BY_CLOCK or (self.exit_code == KILLED and late)

    @property
    def ended_with(self) -> int:
        """Return the exit code of a command that may fail, if it ended in time."""
        __tracebackhide__ = True
        if self.timed_out:
            out_of_time(self._account(self._lateness()))
        return self.exit_code

    @property
    def output(self) -> str:
        """Return standard output; fails the test when the command failed."""
        __tracebackhide__ = True
        if self.ended_with != 0:
            pytest.fail(self._account(f"exit code {self.exit_code}"), pytrace=False)
        return self.stdout

    @property
    def json(self) -> Any:
        """Return the last line of standard output, parsed; fails the test when it cannot."""
        __tracebackhide__ = True
        lines = self.output.strip().splitlines() or [""]
        try:
            return json.loads(lines[-1])
        except json.JSONDecodeError:
            pytest.fail(self._account("no last line of JSON"), pytrace=False)

    @property
    def program(self) -> str:
        """Return the name of what ran, without its arguments: a program of the suites, if any."""
        words = shlex.split(self.command)
        programs = [word.rpartition("/")[2] for word in words if word.endswith(".py")]
        return (programs or words)[0]

    def _lateness(self) -> str:
        if self.took and self.took < self.seconds:
            return f"gave up after {self.took:.0f} s"
        return f"stopped after {self.seconds} s"

    def _account(self, fault: str) -> str:
        """Return what was wrong, with the last words of the command; then all that it printed."""
        last = (self.stderr.strip() or self.stdout.strip()).splitlines()[-1:]
        parts = [": ".join((self.program, fault, *last))]
        if fault in self.shown:
            return f"{parts[0]}\n(what it printed is with the first test that failed by it)"
        self.shown.append(fault)
        for name, text in (("stderr", self.stderr), ("stdout", self.stdout)):
            tail = text.strip().splitlines()[-LINES_SHOWN:]
            parts += [f"--- {name}, last {len(tail)} lines", *tail]
        return "\n".join([*parts, "--- command", self.command])


@dataclass(frozen=True)
class Container:
    """A running container that holds a copy of the suites' programs."""

    host: Host
    programs: str

    def run(self, *argv: str, seconds: int) -> Ran:
        """Run `argv` in the container, for at most `seconds`, or more if it is emulated."""
        seconds = allowed(seconds)
        command = shlex.join(argv)
        limited = f"timeout --kill-after={SECONDS_TO_DIE} {seconds} {command}"
        began = time.monotonic()
        result = self.host.run(limited)
        took = time.monotonic() - began
        return Ran(command, seconds, result.rc, result.stdout, result.stderr, took)

    def program(self, name: str, *args: str, seconds: int) -> Ran:
        """Run one of the suites' programs with the image's own `python`."""
        return self.run("python", self.path_of(name), *args, seconds=seconds)

    def forked(self, name: str, *args: str, seconds: int) -> Ran:
        """Run a program that uses TensorFlow, which starts once for all that are run like this.

        Each has a process of its own. Where TensorFlow does not start, the program says so itself.
        """
        words = (self.path_of(name), *args)
        whole = self.program("one_start.py", str(allowed(seconds)), *words, seconds=seconds)
        if whole.timed_out:
            return whole
        if whole.failed:
            return self.program(name, *args, seconds=seconds)
        return Ran(shlex.join(("python", *words)), seconds, took=whole.took, **whole.json)

    def path_of(self, name: str) -> str:
        """Return where the program `name` lies in the container."""
        return f"{self.programs}/{name}"

    def fresh_folder(self) -> str:
        """Return a new empty folder in the container; it goes when the session ends."""
        return self.run("mktemp", "-d", "-p", self.programs, seconds=10).output.strip()
