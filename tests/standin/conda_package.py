"""Conda packages in their old format: a .tar.bz2 with files and the folder ``info``."""

import hashlib
import io
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standin.conda_interpreter import PLACEHOLDER, is_elf
from standin.deb import TIME


@dataclass(frozen=True)
class PackageName:
    """What a package's file name says."""

    file: str
    name: str
    version: str
    build: str

    @property
    def index(self) -> dict[str, Any]:
        """Return ``info/index.json``."""
        number = re.search(r"\d+$", self.build)
        return {
            "name": self.name,
            "version": self.version,
            "build": self.build,
            "build_number": int(number[0]) if number else 0,
            "depends": [],
            "subdir": "linux-64",
        }


def parse_name(file: str) -> PackageName:
    name, version, build = file.removesuffix(".tar.bz2").rsplit("-", 2)
    return PackageName(file, name, version, build)


def write_package(tree: Path, package: PackageName, target: Path) -> dict[str, Any]:
    """Write the files of ``tree`` as a package; return its entry in ``repodata.json``."""
    files = sorted(path for path in tree.rglob("*") if path.is_symlink() or path.is_file())
    names = [path.relative_to(tree).as_posix() for path in files]
    prefixed = [name for name, path in zip(names, files, strict=True) if has_placeholder(path)]
    info = {
        "info/index.json": json.dumps(package.index, indent=2),
        "info/files": "".join(f"{name}\n" for name in names),
        "info/has_prefix": "".join(f"{PLACEHOLDER} text {name}\n" for name in prefixed),
    }
    write_tar_bz2(tree, info, target)
    content = target.read_bytes()
    digests = {
        "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
    }
    return {**package.index, **digests}


def write_tar_bz2(tree: Path, extra: dict[str, str], target: Path) -> None:
    """Write ``tree`` and the files ``extra``, by path, as an archive: the same bytes each time."""
    with tarfile.open(target, "w:bz2", format=tarfile.GNU_FORMAT) as archive:
        for name, text in sorted(extra.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(text.encode()), 0o644, TIME
            archive.addfile(entry, io.BytesIO(text.encode()))
        for path in sorted(tree.rglob("*")):
            if path.is_symlink() or path.is_file():
                archive.add(path, path.relative_to(tree), filter=_plain, recursive=False)


def has_placeholder(path: Path) -> bool:
    if path.is_symlink() or is_elf(path):
        return False
    return PLACEHOLDER.encode() in path.read_bytes()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = TIME
    return entry
