"""Paths: the checkout's files, and this user's caches and state."""

import os
from pathlib import Path

from imgbuild.errors import InputError

#: Names another file of settings than the checkout's: ``imgbuild --settings`` sets it.
SETTINGS_VARIABLE = "IMGBUILD_SETTINGS"


class Project:
    """The paths of one checkout. ``root`` is the folder that holds ``matrix.yaml``."""

    def __init__(self, root: Path) -> None:
        images = root / "images"
        self.root = root
        self.matrix = root / "matrix.yaml"
        #: Jinja2 templates of the Dockerfiles, one partial a component.
        self.templates = images / "templates"
        #: Files that Dockerfiles mount or copy.
        self.files = images / "files"
        #: The keys that sign the apt repositories of upstreams.
        self.keyrings = self.files / "keyrings"
        #: Hashed package lists, one per TensorFlow, Python and variant.
        self.locks = images / "locks"
        #: What ``imgbuild audit`` read out of wheels and source distributions.
        self.evidence = images / "evidence.json"
        #: Generated Dockerfiles, one folder an image.
        self.dockerfiles = images / "dockerfiles"
        #: The Dockerfile that makes a CPython of this machine relocatable.
        self.prefix_dockerfile = images / "prefix" / "Dockerfile"
        #: The testinfra suites that run inside the images.
        self.suites = root / "tests" / "image"

    @property
    def settings(self) -> Path:
        """What this machine offers: the checkout's file, or that of ``imgbuild --settings FILE``.

        ``doctor --write`` writes it; it is never committed.
        """
        return Path(os.environ.get(SETTINGS_VARIABLE) or self.root / "imgbuild.local.yaml")


def find_project(start: Path) -> Project:
    """Return the checkout around ``start``.

    Raises:
        InputError: neither ``start`` nor any folder above it holds ``matrix.yaml``.

    """
    for folder in (start, *start.parents):
        if os.path.isfile(folder / "matrix.yaml"):  # noqa: PTH113 - no error, whatever its name is
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
