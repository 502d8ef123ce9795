"""A Docker engine with BuildKit from the distribution's own packages.

Debian 12 has docker.io 20.10 and no buildx; the packages of later suites install on it without
touching its C library. A version says little about what BuildKit can do, so the newest suite is
tried first and its features are probed afterwards.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imgbuild.doctor.apt import (
    POLICY,
    install_command,
    install_packages,
    quiet_environment,
    services_stay_stopped,
)
from imgbuild.doctor.apt_sources import APT, AptSource, find_debian_source, read_sources
from imgbuild.doctor.machine import Machine
from imgbuild.doctor.private_apt import private_apt
from imgbuild.doctor.shell import Shell
from imgbuild.errors import MachineError

#: The newest first.
SUITES = ("sid", "forky", "trixie")
ENGINE = ("docker.io", "docker-cli", "docker-buildx")
CLIENT = ("docker-buildx",)
#: What an engine's installation may upgrade; anything else of the machine stays as it is.
_ENGINE_PARTS = frozenset({*ENGINE, "containerd", "runc"})


@dataclass(frozen=True)
class EnginePackages:
    """Installs an engine on one machine. Nothing is started, and apt's own set-up stays."""

    machine: Machine
    shell: Shell
    apt: Path = APT
    policy: Path = POLICY

    def install(self, packages: Sequence[str] = ENGINE) -> None:
        """Install an engine, or with :data:`CLIENT` only buildx.

        Raises:
            MachineError: no suite has packages that fit this machine; with each suite's reason.

        """
        if self.machine.family == "ubuntu":
            names = [name for name in packages if name != "docker-cli"]  # part of docker.io there
            install_packages([*names, *_with_engine(packages)], self.shell, self.policy)
            return
        sources = _debian_sources(self.machine.codename, self.apt)
        reasons: list[str] = []
        for suite in SUITES:
            reason = self._install_from(suite, sources, packages)
            if reason is None:
                return
            reasons.append(f"{suite}: {reason}")
            self.shell.say(reasons[-1])
        raise MachineError(
            f"No suite of Debian has {', '.join(packages)} for this machine. {'; '.join(reasons)}. "
            "Install Docker Engine with its buildx plugin yourself, or set DOCKER_HOST to another."
        )

    def _install_from(
        self, suite: str, sources: Sequence[AptSource], packages: Sequence[str]
    ) -> str | None:
        """Install ``packages`` from ``suite``; return why that is not possible, or ``None``."""
        wanted = [*(f"{name}/{suite}" for name in packages), *_with_engine(packages)]
        with private_apt(sources, sources[0].at(suite), self.apt) as config:
            env = quiet_environment(config)
            updated = self.shell.run(["apt-get", "update", "-q", "--error-on=any"], env)
            if not updated.ok:
                return f"apt-get update: {updated.last(1)}"
            return self._plan(wanted, env) or self._carry_out(wanted, env)

    def _plan(self, wanted: Sequence[str], env: Mapping[str, str]) -> str | None:
        planned = self.shell.run(install_command(wanted, simulate=True), env)
        if not planned.ok:
            return planned.last(1)
        changed = disturbed(planned.output)
        return f"it would change {', '.join(changed)}" if changed else None

    def _carry_out(self, wanted: Sequence[str], env: Mapping[str, str]) -> str | None:
        with services_stay_stopped(self.policy):
            installed = self.shell.run(install_command(wanted), env)
        return None if installed.ok else installed.last(3)


def _with_engine(packages: Sequence[str]) -> list[str]:
    """Return what dockerd calls and not every version of its package depends on."""
    return ["iptables"] if "docker.io" in packages else []


def _debian_sources(codename: str, apt: Path) -> list[AptSource]:
    """Return the machine's source of its own release, and of its security updates."""
    found = find_debian_source(codename, apt)
    if found is None:
        raise MachineError(
            f"apt has no source of Debian's {codename or 'release'} here ({apt}/sources.list.d), "
            "so there is nothing to tell where its newer suites are. Install Docker Engine with "
            "its buildx plugin yourself, or set DOCKER_HOST."
        )
    security = [s for s in read_sources(apt) if f"{codename}-security" in s.suites]
    return [found, *(source for source in security if source.uris != found.uris)]


def disturbed(simulation: str) -> list[str]:
    """Return the installed packages that apt would upgrade or remove, but for the engine's own.

    ``Inst NAME [OLD] (NEW ...)`` upgrades, ``Inst NAME (NEW ...)`` installs, ``Remv NAME`` removes.
    """
    changes = re.findall(r"^(?:Inst (\S+) \[|Remv (\S+) )", simulation, re.MULTILINE)
    return sorted({one or other for one, other in changes} - _ENGINE_PARTS)
