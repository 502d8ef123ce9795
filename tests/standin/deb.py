"""Debian packages, written and taken apart by the standard library. Format: deb(5)."""

import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: 2026-11-01, the time of every file in every package.
TIME = 1793491200
_MAGIC = b"!<arch>\n"
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
        """Return the control fields, in the usual order."""
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
    control = {"control": Member(format_control(package.control).encode())}
    for name, text in package.scripts.items():
        control[name] = Member(text.encode(), 0o644 if name == "triggers" else 0o755)
    write_archive(path, {"control.tar.gz": tar_gz(control), "data.tar.gz": tar_gz(package.files)})


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Write a .deb of the given control and data archives."""
    with path.open("wb") as out:
        out.write(_MAGIC)
        for name, content in {"debian-binary": b"2.0\n", **members}.items():
            out.write(
                f"{name:<16}{TIME:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
            )
            out.write(content + b"\n" * (len(content) % 2))


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the members of a .deb, each as it lies there."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        raise ValueError(f"{path} is no Debian package")
    return dict(_members(content))


def open_tar(members: Mapping[str, bytes], which: str) -> tarfile.TarFile:
    """Return the ``control`` or ``data`` archive of :func:`read_archive`'s answer, for reading."""
    name = next(name for name in members if name.startswith(f"{which}.tar"))
    unpack = gzip.decompress if name.endswith(".gz") else lzma.decompress
    return tarfile.open(fileobj=io.BytesIO(unpack(members[name])))


def parse_control(text: str) -> dict[str, str]:
    """Return the fields of one control paragraph; continuation lines keep their form."""
    fields: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line[:1] in {" ", "\t"}:
            fields[key] += "\n" + line
        elif line:
            key, _, value = line.partition(":")
            fields[key] = value.strip()
    return fields


def format_control(fields: Mapping[str, str]) -> str:
    """Return the paragraph of these fields."""
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def renamed(path: Path, changes: Mapping[str, str], target: Path) -> None:
    """Write a copy of the package at ``path`` with other control fields; its files stay."""
    members = read_archive(path)
    with open_tar(members, "control") as archive:
        control = {
            entry.name.removeprefix("./"): Member(_content(archive, entry), entry.mode)
            for entry in archive
            if entry.isfile()
        }
    fields = {**parse_control(control["control"].content.decode()), **changes}
    control["control"] = Member(format_control(fields).encode())
    data = {name: content for name, content in members.items() if name.startswith("data.tar")}
    write_archive(target, {"control.tar.gz": tar_gz(control), **data})


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    place = len(_MAGIC)
    while place + 60 <= len(content):
        name = content[place : place + 16].decode().rstrip(" /")
        size = int(content[place + 48 : place + 58])
        yield name, content[place + 60 : place + 60 + size]
        place += 60 + size + size % 2


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(entry)
    return stream.read() if stream else b""


def tar_gz(files: Mapping[str, Member], start: str = "./") -> bytes:
    """Return a compressed archive of the files and their folders; the same bytes each time.

    Every name in it begins with ``start``, as those of a package do.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for folder in sorted(_folders(files)):
            archive.addfile(_entry(f"{start}{folder}/", Member(mode=0o755), tarfile.DIRTYPE))
        for path, member in sorted(files.items()):
            kind = tarfile.REGTYPE if member.link is None else tarfile.SYMTYPE
            archive.addfile(_entry(f"{start}{path}", member, kind), io.BytesIO(member.content))
    return gzip.compress(plain.getvalue(), 6, mtime=0)


def _entry(name: str, member: Member, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, member.mode, TIME
    entry.uname = entry.gname = "root"
    entry.size = len(member.content) if kind == tarfile.REGTYPE else 0
    entry.linkname = member.link or ""
    return entry


def _folders(files: Mapping[str, Member]) -> set[str]:
    found: set[str] = set()
    for path in files:
        parts = path.split("/")[:-1]
        found.update("/".join(parts[: n + 1]) for n in range(len(parts)))
    return found
