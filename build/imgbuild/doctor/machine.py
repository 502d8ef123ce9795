"""Which system this is, and how its user installs something here."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Family = Literal["debian", "ubuntu", "other"]

OS_RELEASE = Path("/etc/os-release")


@dataclass(frozen=True)
class Machine:
    """The distribution, its release, and whether this user may change it."""

    family: Family
    codename: str
    """The release as apt calls it, such as ``bookworm``; empty if the system has none."""
    root: bool
    apt: bool

    @property
    def mendable(self) -> bool:
        """Whether ``imgbuild doctor --mend`` can install anything here."""
        return self.root and self.apt and self.family != "other"

    def install(self, *packages: str) -> str:
        """Return the command that installs Debian packages, or what to do where there is no apt."""
        if not self.apt:
            return f"install {' '.join(packages)} with this system's package manager"
        return f"{self._sudo}apt-get install -y {' '.join(packages)}"

    def doctor(self, option: str) -> str:
        """Return the command line of ``imgbuild doctor``; ``--mend`` changes the machine."""
        sudo = self._sudo if "--mend" in option else ""
        return f"{sudo}{_own_name()} doctor {option}"

    @property
    def _sudo(self) -> str:
        return "" if self.root else "sudo "


def read_machine(os_release: Path = OS_RELEASE) -> Machine:
    """Return this machine, from os-release(5)."""
    text = os_release.read_text(encoding="utf-8") if os_release.is_file() else ""
    values = _parse(text)
    return Machine(
        family=_family(values),
        codename=values.get("VERSION_CODENAME", ""),
        root=os.geteuid() == 0,
        apt=shutil.which("apt-get") is not None,
    )


def _parse(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.strip(): " ".join(shlex.split(value)) for key, value in pairs}


def _family(values: dict[str, str]) -> Family:
    names = [values.get("ID", ""), *values.get("ID_LIKE", "").split()]
    # Ubuntu says ID_LIKE=debian, and its derivatives say ID_LIKE="ubuntu debian".
    if "ubuntu" in names:
        return "ubuntu"
    return "debian" if "debian" in names else "other"


def _own_name() -> str:
    """Return how this program was called; ``sudo`` does not look into a virtual environment."""
    called = sys.argv[0]
    return called if called.endswith("/imgbuild") else "imgbuild"
