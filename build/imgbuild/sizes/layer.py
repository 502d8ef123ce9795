"""One layer of an image: every file it writes, and what it takes away of the layers below."""

import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import IO, NamedTuple

from imgbuild.sizes.owners import Listing, owners_of, read_listing

#: Whiteouts. Source: OCI Image Layer Filesystem Changeset, "Whiteouts" and "Opaque Whiteout".
_GONE, _OPAQUE, _RESERVED = ".wh.", ".wh..wh..opq", ".wh..wh."


class Kind(StrEnum):
    """What a path is. Only a file has bytes of its own."""

    FILE = "f"
    HARD_LINK = "h"
    FOLDER = "d"
    OTHER = "o"


class Entry(NamedTuple):
    """A path that a layer writes. ``size`` is what ``ls -l`` says of a file, in bytes.

    A hard link has none: the bytes are its target's, ``link``. ``owner`` is the package whose list
    of files, in the same layer, names the path; empty if none does.
    """

    path: str
    kind: Kind
    size: int = 0
    link: str = ""
    owner: str = ""


@dataclass(frozen=True)
class Layer:
    """What one layer does. ``removed`` are paths of lower layers that it takes away.

    ``opaque`` are folders that show nothing of the layers below.
    """

    entries: tuple[Entry, ...]
    removed: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of its files: what an engine with a graph driver says that it has."""
        return sum(entry.size for entry in self.entries)


def read_layer(stream: IO[bytes]) -> Layer:
    """Return the layer whose tar archive is in ``stream``; its end is not looked at.

    Raises:
        tarfile.TarError: it is no tar archive, or ends too early.

    """
    entries: dict[str, Entry] = {}
    removed: list[str] = []
    opaque: list[str] = []
    listings: list[Listing] = []
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            path = plain_path(member.name)
            folder, _, name = path.rpartition("/")
            if name == _OPAQUE:
                opaque.append(folder)
            elif name.startswith(_GONE) and not name.startswith(_RESERVED):
                removed.append(f"{folder}/{name.removeprefix(_GONE)}".lstrip("/"))
            elif path and not name.startswith(_RESERVED):
                entries[path] = _entry(member, path)
                listings += read_listing(path, member.size, partial(tar.extractfile, member))
    return Layer(_owned(entries.values(), listings), tuple(removed), tuple(opaque))


def plain_path(name: str) -> str:
    """Return a path as it is from the root, without a slash at either end."""
    return "/".join(part for part in name.split("/") if part not in {"", "."})


def _entry(member: tarfile.TarInfo, path: str) -> Entry:
    if member.isfile():  # sparse files too, with the size that they show
        return Entry(path, Kind.FILE, member.size)
    if member.islnk():
        return Entry(path, Kind.HARD_LINK, link=plain_path(member.linkname))
    return Entry(path, Kind.FOLDER if member.isdir() else Kind.OTHER)


def _owned(entries: Iterable[Entry], listings: list[Listing]) -> tuple[Entry, ...]:
    find = owners_of(listings)
    return tuple(
        entry._replace(owner=find(entry.path)) if entry.size else entry for entry in entries
    )
