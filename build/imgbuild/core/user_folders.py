"""The folders of this user: settings, caches and state."""

import os
from pathlib import Path

from imgbuild.core.errors import MachineError


def home() -> Path:
    """Return this user's home folder; raise MachineError if neither HOME nor passwd has one."""
    try:
        return Path.home()
    except RuntimeError:
        raise MachineError(
            f"The user {os.getuid()} has no home folder: HOME is not set, and the system knows no "
            "such user. Set HOME to a folder that you can write to."
        ) from None


def config_dir() -> Path:
    """Return the folder for settings outside a checkout."""
    return _user_folder("XDG_CONFIG_HOME", ".config")


def cache_dir() -> Path:
    """Return the folder for files that can be made again (base images, interpreters)."""
    return _user_folder("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Return the folder for logs, reports and locks of this machine."""
    return _user_folder("XDG_STATE_HOME", ".local/state")


def _user_folder(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or home() / usual) / "imgbuild"
