"""Debian packages, written and taken apart by dpkg-deb."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

#: 2026-11-01, the time of every file in every package.
TIME = 1793491200
#: What dpkg is told, so that the linker's cache knows the new libraries.
LDCONFIG = "activate-noawait ldconfig\n"


@dataclass(frozen=True)
class Member:
    """One thing that a package puts into the file system: a file or a link."""

    content: bytes = b""
    mode: int = 0o644
    link: str | None = None


@dataclass(frozen=True)
class Package:
    """A binary package: its control fields, its files by path (no leading slash), its scripts."""

    name: str
    version: str
    description: str
    fields: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Member] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """Return the archive's name; without the epoch, as everywhere."""
        return f"{self.name}_{self.version.split(':')[-1]}_amd64.deb"

    @property
    def control(self) -> dict[str, str]:
        return {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "amd64",
            "Maintainer": "imgbuild stand-in <stand-in@localhost>",
            **self.fields,
            "Description": f"stand-in for tests: {self.description}",
        }


def write_deb(package: Package, path: Path) -> None:
    """Write the package to ``path``; the same package gives the same bytes."""
    control = {"control": format_control(package.control), **package.scripts}
    files = {f"DEBIAN/{name}": Member(text.encode()) for name, text in control.items()}
    with TemporaryDirectory(prefix="standin-") as tree:
        for name, member in {**package.files, **files}.items():
            place = Path(tree) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if member.link is None:
                place.write_bytes(member.content)
                place.chmod(member.mode)
            else:
                place.symlink_to(member.link)
        _pack(Path(tree), path)


def renamed(path: Path, changes: Mapping[str, str], target: Path) -> None:
    """Write a copy of the package at ``path`` with other control fields; its files stay."""
    with TemporaryDirectory(prefix="standin-") as tree:
        run_dpkg_deb("--raw-extract", path, tree)
        control = Path(tree) / "DEBIAN" / "control"
        text = control.read_text(encoding="utf-8")
        for name, value in changes.items():
            text = re.sub(rf"^{name}:.*\n( .*\n)*", f"{name}: {value}\n", text, flags=re.MULTILINE)
        control.write_text(text, encoding="utf-8")
        _pack(Path(tree), target)


def _pack(tree: Path, target: Path) -> None:
    for place in (tree, *tree.rglob("*")):
        if place.is_dir() and not place.is_symlink():
            place.chmod(0o755)
        os.utime(place, (TIME, TIME), follow_symlinks=False)
    run_dpkg_deb("--root-owner-group", "-Zgzip", "--build", tree, target)


def run_dpkg_deb(*words: str | Path) -> str:
    """Return what dpkg-deb prints, such as the control fields with ``--field``."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME)}
    command = ["dpkg-deb", *words]
    return subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def format_control(fields: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in fields.items())
