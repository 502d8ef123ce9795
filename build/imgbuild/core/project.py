"""The paths of a checkout or of the installed family."""

import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.core.errors import InputError
from imgbuild.core.user_folders import config_dir

if TYPE_CHECKING:
    from imgbuild.core.settings import Settings

#: The family that a wheel brings (build/hatch_build.py); an editable install has none.
INSTALLED = Path(os.path.realpath(__file__)).parents[1] / "family"
#: The parts of a family. The last one marks a folder as a family.
PARTS = ("LICENSE", "NOTICE", "images", "tests/image", "matrix.yaml")
#: The settings beside the matrix.
SETTINGS_FILE = "imgbuild.local.yaml"
#: The parts of a checkout that name programs, or hold some that run on this machine.
_CHECKED = ("matrix.yaml", SETTINGS_FILE, "images", "tests", "tests/image")
#: Holds the commit that an installed family is of.
REVISION = "REVISION"


@dataclass(frozen=True)
class SettingsOptions:
    """The options for settings: ``--settings FILE``, and ``NAME=URL`` of each ``--mirror``."""

    file: Path | None = None
    mirrors: tuple[str, ...] = ()


class Project:
    """The paths of one family of images, and the settings of this machine.

    ``root`` is the folder that holds ``matrix.yaml``.
    """

    def __init__(self, root: Path, options: SettingsOptions | None = None) -> None:
        images = root / "images"
        self.root = root
        self.options = options or SettingsOptions()
        self.matrix = root / "matrix.yaml"
        #: Jinja2 templates of the Dockerfiles, one partial a component.
        self.templates = images / "templates"
        #: Files that Dockerfiles mount or copy.
        self.files = images / "files"
        #: The keys that sign the apt repositories of upstreams.
        self.keyrings = self.files / "keyrings"
        #: Hashed package lists, one per TensorFlow, Python and variant.
        self.locks = images / "locks"
        #: Facts that ``imgbuild audit`` read from wheels and source distributions.
        self.evidence = images / "evidence.json"
        #: Generated Dockerfiles, one folder an image.
        self.dockerfiles = images / "dockerfiles"
        #: The Dockerfile that makes a CPython of this machine relocatable.
        self.prefix_dockerfile = images / "prefix" / "Dockerfile"
        #: The testinfra suites that run inside the images.
        self.suites = root / "tests" / "image"

    @property
    def settings_file(self) -> Path:
        """The settings of this machine: the checkout's file, or that of ``--settings``.

        ``doctor --write`` writes it; it is never committed.
        """
        folder = config_dir() if self.is_installed else self.root
        return self.options.file or folder / SETTINGS_FILE

    @cached_property
    def settings(self) -> "Settings":
        """The settings as `read_settings` returns them; a file that the user names must exist."""
        if self.options.file and not self.options.file.exists():
            raise InputError(f"--settings {self.options.file}: no such file.")
        return self.read_settings()

    def read_settings(self) -> "Settings":
        """Return the settings of the file, or the defaults if there is none.

        InputError: the file or a mirror is wrong.
        """
        from imgbuild.core.settings import load_settings  # noqa: PLC0415 - brings pydantic

        return load_settings(self.settings_file, self.options.mirrors)

    @property
    def is_installed(self) -> bool:
        """Whether this is the family that came with imgbuild: it is read, never written."""
        return self.root == INSTALLED


def find_root(start: Path) -> Path | None:
    """Return the folder of the checkout around ``start``, or None if there is none."""
    for folder in (start, *start.parents):
        if os.path.isfile(folder / "matrix.yaml"):  # noqa: PTH113 - no error, whatever its name is
            return folder
    return None


def find_project(
    start: Path,
    options: SettingsOptions | None = None,
    *,
    or_installed: bool = False,
    named: bool = False,
) -> Project:
    """Return the checkout around ``start``, or the installed family if there is none.

    ``named`` says that the user named ``start``; a checkout found elsewhere needs a trusted owner.

    InputError: neither ``start`` nor any folder above it holds ``matrix.yaml``, or what does
    belongs to another user.
    """
    root = find_root(start)
    if root:
        project = Project(root, options)
        if not (named and root == start):
            _require_trusted_owner(project)
        return project
    if or_installed and INSTALLED.is_dir():
        return Project(INSTALLED, options)
    raise InputError(
        f"No matrix.yaml in {start} or any folder above it. Run imgbuild inside a checkout, "
        "or name one with --project DIR."
    )


def _require_trusted_owner(project: Project) -> None:
    """Refuse a checkout that another user may have put around the current folder.

    Its settings name programs that run as this user, and its suites are such programs. The rule is
    that of Git's ``safe.directory``; root is trusted as well.
    """
    trusted = {os.geteuid(), 0}
    sudo_user = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and sudo_user.isascii() and sudo_user.isdecimal():
        trusted.add(int(sudo_user))
    for path in _owned_paths(project):
        with suppress(FileNotFoundError, NotADirectoryError):
            owner = os.lstat(path).st_uid
            if owner not in trusted:
                raise InputError(
                    f"{path} belongs to {_user_name(owner)}, and imgbuild runs as "
                    f"{_user_name(os.geteuid())}. A checkout names programs to run, so one of "
                    "another user is used only if you name it. If you trust the files in "
                    f"{project.root}, give --project {project.root}, or set "
                    f"IMGBUILD_PROJECT={project.root}."
                )


def _owned_paths(project: Project) -> Iterator[Path]:
    """Yield the paths whose owner decides what a checkout holds.

    These are its folder, and the files and folders that commands read first: in a folder like /tmp
    they may belong to somebody else than the folder does. A link adds its real file, because the
    link's owner chose that, and the folder of the real file, whose owner can replace it.
    """
    yield project.root
    for part in _CHECKED:
        # Settings that the user names are used whoever owns them.
        if part == SETTINGS_FILE and project.options.file:
            continue
        path = project.root / part
        yield path
        if path.is_symlink():
            real = Path(os.path.realpath(path))
            yield from (real, real.parent)


def _user_name(number: int) -> str:
    with suppress(KeyError):
        return f"the user {pwd.getpwuid(number).pw_name}"
    return f"the user {number}"
