"""Commands that change this machine: each is shown before it runs."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from imgbuild.doctor.programs import Outcome, Programs
from imgbuild.errors import MachineError

#: Installing an engine takes about 20 s; a slow network may take minutes.
TIMEOUT = 1800.0


@dataclass(frozen=True)
class Shell:
    """Runs commands one after another; ``say`` gets one line before each."""

    programs: Programs
    say: Callable[[str], None]

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> Outcome:
        """Show and run ``command``; ``env`` is added to the environment and shown too."""
        words = [f"{key}={shlex.quote(value)}" for key, value in (env or {}).items()]
        self.say(" ".join(["+", *words, shlex.join(command)]))
        return self.programs.run(command, timeout=TIMEOUT, env=env)

    def must(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Run ``command``.

        Raises:
            MachineError: it failed; with its last lines.

        """
        outcome = self.run(command, env)
        if not outcome.ok:
            raise MachineError(f"`{shlex.join(command)}` failed: {outcome.last(5)}")
