"""Programs that only exist in a test, and what was asked of them."""

import shlex
from collections.abc import Mapping, Sequence

from imgbuild.doctor.machine import Machine
from imgbuild.doctor.programs import Outcome

DEBIAN = Machine("debian", "bookworm", root=True, apt=True)
USER = Machine("debian", "bookworm", root=False, apt=True)
UBUNTU = Machine("ubuntu", "noble", root=True, apt=True)
OTHER = Machine("other", "", root=True, apt=False)


class FakePrograms:
    """``has`` names the programs there are; ``answers`` maps a part of a command to its outcome."""

    def __init__(self, *has: str, answers: Mapping[str, Outcome] | None = None) -> None:
        self.has = set(has)
        self.answers = dict(answers or {})
        self.commands: list[str] = []
        self.environments: list[Mapping[str, str]] = []

    def find(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.has else None

    def run(
        self,
        command: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Outcome:
        assert timeout > 0
        assert stdin is not None
        line = shlex.join(command)
        self.commands.append(line)
        self.environments.append(env or {})
        return next((out for part, out in self.answers.items() if part in line), Outcome(0, ""))
