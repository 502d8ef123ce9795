"""Running other programs: the edge of the doctor, with a time limit on everything."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

#: Daemons live here, and users other than root often lack it in PATH.
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Outcome:
    """How a program ended. ``output`` is its stdout and stderr together."""

    code: int
    output: str

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0

    def last(self, count: int = 3) -> str:
        """Return its last lines that say something, as one line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return " | ".join(lines[-count:]) or f"exit code {self.code}, no output"


class Programs(Protocol):
    """What the doctor asks of this machine's programs."""

    def find(self, name: str) -> str | None:
        """Return the path of a program, or ``None``."""

    def run(
        self,
        command: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Outcome:
        """Run ``command`` for at most ``timeout`` seconds; ``env`` is added to the environment."""


class RealPrograms:
    """The programs of this machine."""

    def find(self, name: str) -> str | None:
        """Return the path of a program, also of those that only root has in PATH."""
        return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}")

    def run(
        self,
        command: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Outcome:
        """Run ``command``; a program that takes too long is ended, with its children."""
        try:
            process = _start(command, env or {})
        except OSError as error:
            return Outcome(127, f"{command[0]}: {error.strerror}")
        try:
            output, _ = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            return Outcome(124, f"no answer within {timeout:.0f} s")
        finally:
            _end(process)
        return Outcome(process.returncode, output)


def _start(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C.UTF-8", **env},
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """End what still runs: first in a way that lets it clean up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_GRACE)
