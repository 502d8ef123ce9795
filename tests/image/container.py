"""The container under test: run a command in it with a limit, and read what it printed.

Testinfra's backends have no time limit and do not fail on a command that fails; here both are
added. The two protocols are the part of testinfra that the suites use; testinfra has no type
information of its own.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

LINES_SHOWN = 40
KILLED_BY_TIMEOUT = (124, 137)  # `timeout` itself; its SIGKILL when SIGTERM was not enough
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
    shown: list[str] = field(default_factory=list, compare=False)

    @property
    def failed(self) -> bool:
        """Return whether the command ended badly; what builds on it need not run then."""
        return self.exit_code != 0

    @property
    def output(self) -> str:
        """Return standard output; fails the test when the command failed."""
        __tracebackhide__ = True
        if self.failed:
            pytest.fail(self._account(self._fault()), pytrace=False)
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

    def _fault(self) -> str:
        if self.exit_code in KILLED_BY_TIMEOUT:
            return f"stopped after {self.seconds} s (exit code {self.exit_code})"
        return f"exit code {self.exit_code}"

    def _account(self, fault: str) -> str:
        """Return what ran, what was wrong with it, and the ends of what it printed."""
        parts = [f"{fault}: {self.command}"]
        if fault in self.shown:
            return f"{parts[0]}\n(what it printed is with the first test that failed by it)"
        self.shown.append(fault)
        for name, text in (("stderr", self.stderr), ("stdout", self.stdout)):
            tail = text.strip().splitlines()[-LINES_SHOWN:]
            parts += [f"--- {name}, last {len(tail)} lines", *tail]
        return "\n".join(parts)


@dataclass(frozen=True)
class Container:
    """A running container that holds a copy of the suites' programs."""

    host: Host
    programs: str

    def run(self, *argv: str, seconds: int) -> Ran:
        """Run `argv` in the container, for at most `seconds`."""
        command = shlex.join(argv)
        limited = f"timeout --kill-after={SECONDS_TO_DIE} {seconds} {command}"
        result = self.host.run(limited)
        return Ran(command, seconds, result.rc, result.stdout, result.stderr)

    def program(self, name: str, *args: str, seconds: int) -> Ran:
        """Run one of the suites' programs with the image's own `python`."""
        return self.run("python", self.path_of(name), *args, seconds=seconds)

    def forked(self, name: str, *args: str, seconds: int) -> Ran:
        """Run a program that uses TensorFlow, which starts once for all that are run like this.

        Each has a process of its own. Where TensorFlow does not start, the program says so itself.
        """
        words = (self.path_of(name), *args)
        whole = self.program("one_start.py", str(seconds), *words, seconds=seconds)
        if whole.exit_code in KILLED_BY_TIMEOUT:
            return whole
        if whole.failed:
            return self.program(name, *args, seconds=seconds)
        return Ran(shlex.join(("python", *words)), seconds, **whole.json)

    def path_of(self, name: str) -> str:
        """Return where the program `name` lies in the container."""
        return f"{self.programs}/{name}"

    def fresh_folder(self) -> str:
        """Return a new empty folder in the container; it goes when the session ends."""
        return self.run("mktemp", "-d", "-p", self.programs, seconds=10).output.strip()
