"""The paths of a checkout, or of the installed family of images."""

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

#: The family inside the wheel (build/hatch_build.py); an editable install has none.
INSTALLED = Path(os.path.realpath(__file__)).parents[1] / "family"
#: The checkout whose code is running, if imgbuild is not installed from a wheel.
OWN_CHECKOUT = Path(os.path.realpath(__file__)).parents[3]
#: The parts of a family. The last one marks a folder as a family.
PARTS = ("LICENSE", "NOTICE", "images", "tests/image", "matrix.yaml")
#: The settings file, next to the matrix.
SETTINGS_FILE = "imgbuild.local.yaml"
#: The decisions of `imgbuild adopt`, in a repository.
ADOPTION_FILE = "imgbuild.adopt.yaml"
#: The parts of a checkout that name or contain programs that run on this machine.
_CHECKED = ("matrix.yaml", SETTINGS_FILE, "images", "tests", "tests/image")
#: The file with the commit from which an installed family was built.
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
        #: Jinja2 templates of the Dockerfiles, one partial per component.
        self.templates = images / "templates"
        #: Files that Dockerfiles mount or copy.
        self.files = images / "files"
        #: The public keys of the upstreams' apt repositories.
        self.keyrings = self.files / "keyrings"
        #: Hashed package lists, one per TensorFlow, Python and variant.
        self.locks = images / "locks"
        #: Facts that ``imgbuild audit`` read from wheels and source distributions.
        self.evidence = images / "evidence.json"
        #: Generated Dockerfiles, one folder per image.
        self.dockerfiles = images / "dockerfiles"
        #: The Dockerfile that makes this machine's CPython relocatable.
        self.prefix_dockerfile = images / "prefix" / "Dockerfile"
        #: The testinfra suites that run inside the images.
        self.suites = root / "tests" / "image"

    @property
    def settings_file(self) -> Path:
        """The settings file of this machine: the checkout's file, or the file of ``--settings``.

        ``doctor --write`` writes this file. It is never committed.
        """
        folder = config_dir() if self.is_installed else self.root
        return self.options.file or folder / SETTINGS_FILE

    @cached_property
    def settings(self) -> "Settings":
        """The settings from `read_settings`; the file of ``--settings`` must exist."""
        if self.options.file and not self.options.file.exists():
            raise InputError(f"--settings {self.options.file}: no such file.")
        return self.read_settings()

    def read_settings(self) -> "Settings":
        """Return the settings in the file, or the defaults if there is no file.

        InputError: the file or a mirror is invalid.
        """
        from imgbuild.core.settings import load_settings  # noqa: PLC0415 - imports pydantic

        return load_settings(self.settings_file, self.options.mirrors)

    @property
    def is_installed(self) -> bool:
        """Whether this is the family inside the wheel, which imgbuild never writes to."""
        return self.root == INSTALLED


def find_root(start: Path) -> Path | None:
    """Return the folder of the checkout around ``start``, or None if there is none."""
    for folder in (start, *start.parents):
        if os.path.isfile(folder / "matrix.yaml"):  # noqa: PTH113 - does not raise
            return folder
    return None


def find_project(
    start: Path,
    options: SettingsOptions | None = None,
    *,
    or_installed: bool = False,
    named: bool = False,
) -> Project:
    """Return the checkout around ``start``, or with ``or_installed`` the installed family.

    ``named`` says that the user named ``start``. A checkout in any other folder needs a trusted
    owner.

    InputError: neither ``start`` nor any folder above it has a ``matrix.yaml``, or the checkout
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
        "or use --project DIR."
    )


def _require_trusted_owner(project: Project) -> None:
    """Refuse a checkout that another user may have put around the current folder.

    The settings and the suites of a checkout run programs as this user. Git's ``safe.directory``
    has the same rule; here root is trusted as well.
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
                    f"{_user_name(os.geteuid())}. A checkout can start programs, so imgbuild uses "
                    "another user's checkout only if you name it. If you trust the files in "
                    f"{project.root}, use --project {project.root}, or set "
                    f"IMGBUILD_PROJECT={project.root}."
                )


def _owned_paths(project: Project) -> Iterator[Path]:
    """Yield the paths whose owners control the content of a checkout.

    These are its folder, and the files and folders that commands read first. In a folder like /tmp,
    they may have another owner than the folder. A symbolic link adds its target and the folder of
    the target, because the owner of that folder can replace the target.
    """
    yield project.root
    for part in _CHECKED:
        # A settings file that the user names may have any owner.
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
