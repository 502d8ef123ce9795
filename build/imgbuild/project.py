"""Paths: the files of a checkout or of the installed family; this user's caches and state."""

import os
from pathlib import Path

from imgbuild.errors import InputError, MachineError

#: Names another file of settings than the checkout's: ``imgbuild --settings`` sets it.
SETTINGS_VARIABLE = "IMGBUILD_SETTINGS"
#: The family that a wheel brings (build/hatch_build.py); an editable install has none.
INSTALLED = Path(os.path.realpath(__file__)).with_name("family")
#: What a family is made of; the file that makes a folder one is the last.
PARTS = ("LICENSE", "NOTICE", "images", "tests/image", "matrix.yaml")
#: Holds the commit that an installed family is of.
REVISION = "REVISION"


class Project:
    """The paths of one family of images. ``root`` is the folder that holds ``matrix.yaml``."""

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
        folder = _user_folder("XDG_CONFIG_HOME", ".config") if self.is_installed else self.root
        return Path(os.environ.get(SETTINGS_VARIABLE) or folder / "imgbuild.local.yaml")

    @property
    def is_installed(self) -> bool:
        """Whether this is the family that came with imgbuild: it is read, never written."""
        return self.root == INSTALLED


def find_project(start: Path, *, or_installed: bool = False) -> Project:
    """Return the checkout around ``start``, or the installed family if there is none.

    InputError: neither ``start`` nor any folder above it holds ``matrix.yaml``.
    """
    for folder in (start, *start.parents):
        if os.path.isfile(folder / "matrix.yaml"):  # noqa: PTH113 - no error, whatever its name is
            return Project(folder)
    if or_installed and INSTALLED.is_dir():
        return Project(INSTALLED)
    raise InputError(
        f"No matrix.yaml in {start} or any folder above it. Run imgbuild inside a checkout, "
        "or name one with --project DIR."
    )


def home() -> Path:
    """Return this user's home folder; MachineError if there is no word of any."""
    try:
        return Path.home()
    except RuntimeError:
        raise MachineError(
            f"Neither HOME nor an entry of the user {os.getuid()} names a home folder. Set HOME to "
            "a folder that you can write."
        ) from None


def cache_dir() -> Path:
    """Return the folder for what can be made again (base images, interpreters)."""
    return _user_folder("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Return the folder for what this machine did (logs, reports, locks)."""
    return _user_folder("XDG_STATE_HOME", ".local/state")


def _user_folder(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or home() / usual) / "imgbuild"
