"""The folders of this user: settings, caches and state."""

import os
from pathlib import Path

from imgbuild.core.errors import MachineError


def home() -> Path:
    """Return this user's home folder; MachineError if there is no word of any."""
    try:
        return Path.home()
    except RuntimeError:
        raise MachineError(
            f"Neither HOME nor an entry of the user {os.getuid()} names a home folder. Set HOME to "
            "a folder that you can write."
        ) from None


def config_dir() -> Path:
    """Return the folder for settings outside of a checkout."""
    return _user_folder("XDG_CONFIG_HOME", ".config")


def cache_dir() -> Path:
    """Return the folder for what can be made again (base images, interpreters)."""
    return _user_folder("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Return the folder for what this machine did (logs, reports, locks)."""
    return _user_folder("XDG_STATE_HOME", ".local/state")


def _user_folder(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or home() / usual) / "imgbuild"
