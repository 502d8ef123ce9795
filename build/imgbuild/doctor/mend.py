"""What ``imgbuild doctor --mend`` does: exactly what is missing, and nothing to what is there."""

import shlex
from dataclasses import dataclass

from imgbuild.doctor import engine_process
from imgbuild.doctor.apt import install_packages
from imgbuild.doctor.diagnosis import Diagnosis
from imgbuild.doctor.engine_findings import named_address
from imgbuild.doctor.engine_packages import CLIENT, ENGINE, EnginePackages
from imgbuild.doctor.engine_state import answers
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.own_engine import OwnEngine
from imgbuild.doctor.shell import Shell
from imgbuild.errors import MachineError


@dataclass(frozen=True)
class Mended:
    """What was done: whether anything, and the address of an engine that was started."""

    anything: bool
    host: str | None = None


@dataclass(frozen=True)
class Mender:
    """Mends one machine."""

    machine: Machine
    shell: Shell
    own: OwnEngine

    def mend(self, diagnosis: Diagnosis) -> Mended:
        """Install and start what is missing.

        Raises:
            MachineError: this user or this system cannot be helped, or a command failed.

        """
        needs_engine = self._needs_engine(diagnosis)
        needs_buildx = diagnosis.engine.buildx is None
        is_old = self._is_old(diagnosis)
        if not (diagnosis.packages or needs_engine or needs_buildx or is_old):
            return Mended(anything=False)
        self._require_means()
        if needs_engine:
            engine_process.refuse_beside_others(self.own)
        if diagnosis.packages:
            install_packages(diagnosis.packages, self.shell)
        if needs_engine:
            return Mended(anything=True, host=self._bring_engine(needs_buildx=needs_buildx))
        if is_old:
            return Mended(anything=True, host=self._renew_engine())
        if needs_buildx:
            self._packages(CLIENT)
        return Mended(anything=True)

    def _needs_engine(self, diagnosis: Diagnosis) -> bool:
        """Whether imgbuild may bring its own: never beside an engine, or instead of a named one."""
        engine = diagnosis.engine
        return not engine.answers and named_address(engine, self.own) is None

    def _is_old(self, diagnosis: Diagnosis) -> bool:
        """Whether imgbuild's own engine is one that was installed before and is too old."""
        engine = diagnosis.engine
        return engine.answers and engine.host == self.own.host and engine.lacks_features

    def _require_means(self) -> None:
        if self.machine.mendable:
            return
        if not self.machine.apt or self.machine.family == "other":
            raise MachineError(
                "--mend installs packages of Debian and Ubuntu, and this is another system. "
                "Install what `imgbuild doctor` marks with ✗ by this system's own means; "
                "docs/guide.md says what is needed."
            )
        raise MachineError(f"--mend installs packages: run `{self.machine.doctor('--mend')}`.")

    def _packages(self, packages: tuple[str, ...]) -> None:
        EnginePackages(self.machine, self.shell).install(packages)

    def _bring_engine(self, *, needs_buildx: bool) -> str:
        dockerd = self.shell.programs.find("dockerd")
        if dockerd is None:
            self._packages(ENGINE)
            dockerd = self.shell.programs.find("dockerd") or "dockerd"
        elif needs_buildx:
            self._packages(CLIENT)
        return self._start(dockerd)

    def _renew_engine(self) -> str:
        self.shell.say("Stopping imgbuild's own engine, whose program is too old.")
        engine_process.stop(self.own)
        self._packages(ENGINE)
        return self._start(self.shell.programs.find("dockerd") or "dockerd")

    def _start(self, dockerd: str) -> str:
        if self.own.pid() is None:
            self.shell.say(f"Starting imgbuild's own engine, apart from any other: {self.own.host}")
            self.shell.say(f"+ {shlex.join(self.own.command(dockerd))}")
        else:
            self.shell.say(f"imgbuild's own engine runs already: {self.own.host}")
        engine_process.start(self.own, dockerd, answers)
        return self.own.host
