"""Choose the commands that install missing packages on this machine's system."""

import os
import platform
from pathlib import Path

from imgbuild.core.process import find_program

#: The install command and the packages of an engine with buildx, by the ID of os-release(5).
_SYSTEMS = {
    "debian": ("apt-get install -y", "docker.io docker-cli docker-buildx"),
    "ubuntu": ("apt-get install -y", "docker.io docker-buildx"),
    "macos": ("brew install", "colima docker docker-buildx"),
}
#: The script in a checkout that installs and starts an engine on Debian and Ubuntu.
SETUP = "build/setup/engine.sh"


def system_name() -> str:
    """Return the key in `_SYSTEMS` for this system or a similar one; empty if there is none."""
    if platform.system() == "Darwin":
        return "macos"
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    names = (release.get("ID", ""), *release.get("ID_LIKE", "").split())
    return next((name for name in names if name in _SYSTEMS), "")


def as_root(command: str) -> str:
    if os.geteuid() == 0:
        return command
    return f"sudo {command}" if find_program("sudo") else f"as root: {command}"


def install_command(*packages: str) -> str:
    """Return the command that installs packages, or a hint for an unknown system."""
    system, names = system_name(), " ".join(packages)
    if not system:
        return f"install {names} with this system's package manager"
    command = f"{_SYSTEMS[system][0]} {names}"
    return command if system == "macos" else as_root(command)  # brew refuses root


def engine_setup(root: Path) -> str:
    """Return how to install an engine with buildx, with the checkout's script if there is one."""
    system = system_name()
    if not system:
        return "install Docker Engine 24 or later with its buildx plugin, and start it"
    install = install_command(_SYSTEMS[system][1])
    if system == "macos":
        return f"{install} && colima start"
    if (root / SETUP).is_file():
        return as_root(str(root / SETUP))
    old = " (before Debian 13: https://docs.docker.com/engine/install/debian/)"
    return f"{install}, then start docker.service{old if system == 'debian' else ''}"
