"""Paths: the checkout's files, and this user's caches and state."""

import os
from dataclasses import dataclass
from pathlib import Path

from imgbuild.errors import InputError

#: Names another file of settings than the checkout's: ``imgbuild --settings`` sets it.
SETTINGS_VARIABLE = "IMGBUILD_SETTINGS"


@dataclass(frozen=True)
class Project:
    """The paths of one checkout. ``root`` is the folder that holds ``matrix.yaml``."""

    root: Path

    @property
    def matrix(self) -> Path:
        """The one source of truth."""
        return self.root / "matrix.yaml"

    @property
    def settings(self) -> Path:
        """What this machine offers; written by ``doctor --write``, never committed.

        ``imgbuild --settings FILE`` names another file.
        """
        named = os.environ.get(SETTINGS_VARIABLE)
        return Path(named) if named else self.root / "imgbuild.local.yaml"

    @property
    def templates(self) -> Path:
        """Jinja2 templates of the Dockerfiles, one partial a component."""
        return self.root / "images" / "templates"

    @property
    def files(self) -> Path:
        """Files that Dockerfiles mount or copy."""
        return self.root / "images" / "files"

    @property
    def locks(self) -> Path:
        """Hashed package lists, one per TensorFlow, Python and variant."""
        return self.root / "images" / "locks"

    @property
    def evidence(self) -> Path:
        """What ``imgbuild audit`` read out of wheels and source distributions."""
        return self.root / "images" / "evidence.json"

    @property
    def dockerfiles(self) -> Path:
        """Generated Dockerfiles, one folder an image."""
        return self.root / "images" / "dockerfiles"

    @property
    def prefix_dockerfile(self) -> Path:
        """The Dockerfile that makes a CPython of this machine relocatable."""
        return self.root / "images" / "prefix" / "Dockerfile"

    @property
    def suites(self) -> Path:
        """The testinfra suites that run inside the images."""
        return self.root / "tests" / "image"


def find_project(start: Path) -> Project:
    """Return the checkout around ``start``.

    Raises:
        InputError: neither ``start`` nor any folder above it holds ``matrix.yaml``.

    """
    for folder in (start, *start.parents):
        if (folder / "matrix.yaml").is_file():
            return Project(folder)
    raise InputError(
        f"No matrix.yaml in {start} or any folder above it. Run imgbuild inside a checkout, "
        "or name one with --project DIR."
    )


def cache_dir() -> Path:
    """Return the folder for what can be made again (base images, interpreters)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "imgbuild"


def state_dir() -> Path:
    """Return the folder for what this machine did (logs, reports, locks)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "imgbuild"
