"""The commands that install what is missing on the system of this machine."""

import os
import platform
from pathlib import Path

from imgbuild.process import find_program

#: By the ID of os-release(5): what installs packages, and those of an engine with buildx.
_SYSTEMS = {
    "debian": ("apt-get install -y", "docker.io docker-cli docker-buildx"),
    "ubuntu": ("apt-get install -y", "docker.io docker-buildx"),
    "fedora": ("dnf install -y", "moby-engine docker-cli docker-buildx"),
    "arch": ("pacman -S --needed", "docker docker-buildx"),
    "macos": ("brew install", "colima docker docker-buildx"),
}
#: The script in a checkout that installs and starts an engine on Debian and Ubuntu.
SETUP = "build/setup/engine.sh"
#: What a plain user can do about an engine.
WITHOUT_ROOT = (
    "without root: start your own engine (https://docs.docker.com/engine/security/rootless/), or "
    "set DOCKER_HOST to one that you may use"
)


def system_name() -> str:
    """Return the key of this system, or of what it is like, in `_SYSTEMS`; else nothing."""
    if platform.system() == "Darwin":
        return "macos"
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    # RHEL and its like lack the packages of Fedora.
    alike = release.get("ID_LIKE", "").replace("fedora", "").split()
    return next((one for one in (release.get("ID", ""), *alike) if one in _SYSTEMS), "")


def is_wsl() -> bool:
    """Return whether this is Linux in Windows. Source: WSL's kernel has Microsoft in its name."""
    return "microsoft" in platform.release().lower()


def as_root(command: str) -> str:
    if os.geteuid() == 0:
        return command
    return f"sudo {command}" if find_program("sudo") else f"as root: {command}"


def install_command(*packages: str) -> str:
    """Return the command that installs packages here, or what to do on an unknown system."""
    system, names = system_name(), " ".join(packages)
    if not system:
        return f"install {names} with this system's package manager"
    command = f"{_SYSTEMS[system][0]} {names}"
    return command if system == "macos" else as_root(command)  # brew refuses root


def engine_setup(root: Path) -> str:
    """Return how to get an engine with buildx, by the script of a checkout if ``root`` is one.

    A plain user gets a second line: what can be done without root.
    """
    system = system_name()
    way = "install Docker Engine 24 or later with its buildx plugin, and start it"
    if system in {"debian", "ubuntu"} and (root / SETUP).is_file():
        way = as_root(str(root / SETUP))
    elif system:
        way = install_command(_SYSTEMS[system][1])
        way += " && colima start" if system == "macos" else ", then start docker.service"
        if system == "debian":
            way += " (before Debian 13: https://docs.docker.com/engine/install/debian/)"
    if is_wsl():
        way += "; or Docker Desktop: Settings, Resources, WSL integration"
    return way if os.geteuid() == 0 or system == "macos" else f"{way}\n{WITHOUT_ROOT}"
