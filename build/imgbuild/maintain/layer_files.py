"""Compare the files of layers while the engine exports their images."""

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from imgbuild.core.differences import changed_values
from imgbuild.core.unpacking import LimitedMember, stream_members

#: The path of dpkg's list of installed packages.
_STATUS = "var/lib/dpkg/status"
#: Limit for that file, in bytes; a desktop with 3,000 packages has 3 MB. A larger file is compared
#: like any other file, and no packages are read from it.
_STATUS_LIMIT = 64 << 20
#: The errors raised for a file that is not a valid layer.
_DAMAGE = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(ValueError, OverflowError, RecursionError),
)
_PIECE = 1 << 18
_GZIP = b"\x1f\x8b"
_TYPES = {tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "symbolic link", tarfile.LNKTYPE: "hard link"}
#: Differences by name: the old and the new value; None means missing.
Differences = Mapping[str, tuple[str | int | None, str | int | None]]


#: The facts of a layer's files by path, and the versions of Debian packages.
LayerFiles = tuple[Mapping[str, Mapping[str, str]], Mapping[str, str]]
#: The files of a missing layer.
NOTHING: LayerFiles = ({}, {})


def read_layers(pieces: Iterable[bytes], same: Collection[str]) -> list[LayerFiles | None]:
    """Return the layers in an archive, lowest first; None for a layer that was not read.

    Only the sha256 of a file's content is kept. With a graph driver, layers are named by their diff
    ids, so the layers in ``same`` are skipped.
    """
    left = iter(pieces)
    layers: dict[str, LayerFiles] = {}
    order: list[str] = []
    # A piece may be larger than the size that tarfile requests.
    stream: Any = SimpleNamespace(read=lambda _: next(left, b""))
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            file: Any = archive.extractfile(member)
            if member.name == "manifest.json":
                order = json.load(file)[0]["Layers"]
            elif file and f"sha256:{member.name.rpartition('/')[2]}" not in same:
                # Other files are not tar files, and some layers are damaged.
                with suppress(*_DAMAGE):
                    layers[member.name] = _read_layer(file)
    return [layers.get(name) for name in order]


def file_differences(
    old: LayerFiles | None, new: LayerFiles | None
) -> dict[str, Differences] | None:
    """Return the differences of files by path; None if one of the layers was not read.

    For a file that only one layer has, all facts differ.
    """
    if old is None or new is None:
        return None
    old_files, _ = old
    new_files, _ = new
    changed: dict[str, Differences] = {}
    for path in sorted({*old_files, *new_files}):
        differences = changed_values(old_files.get(path, {}), new_files.get(path, {}))
        if differences:
            changed[path] = differences
    return changed


def _read_layer(file: Any) -> LayerFiles:  # noqa: ANN401 - what tarfile extracts
    """Return the files of a layer, compressed with gzip or uncompressed.

    It raises one of `_DAMAGE` if the layer is damaged or has another format.
    """
    # Engines also use zstd, which tarfile cannot read. tarfile could read bzip2 and LZMA, but would
    # unpack whole pieces of any size.
    packed = file.peek(len(_GZIP)).startswith(_GZIP)
    stream: Any = gzip.GzipFile(fileobj=file) if packed else file
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=LimitedMember) as layer:
        return _layer_files(layer)


def _layer_files(layer: tarfile.TarFile) -> LayerFiles:
    files: dict[str, Mapping[str, str]] = {}
    packages: dict[str, str] = {}
    for member in stream_members(layer):
        content = member.linkname or f"{member.devmajor}:{member.devminor}"
        file: Any = layer.extractfile(member) if member.isreg() else None
        if file and member.name == _STATUS:
            status = file.read(_STATUS_LIMIT + 1)
            digest = hashlib.sha256(status)
            while piece := file.read(_PIECE):
                digest.update(piece)
            content = digest.hexdigest()
            packages = _package_versions(status) if len(status) <= _STATUS_LIMIT else {}
        elif file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        facts = {
            "type": "file" if file else _TYPES.get(member.type, "device"),
            "content": content,
            "time": _time_text(member.mtime),
            "mode": f"{member.mode:o}",
            "owner": f"{member.uid}:{member.gid}",
        }
        headers = member.pax_headers.items()
        facts |= {key: value for key, value in headers if "xattr" in key}
        files[member.name] = facts
    return files, packages


def _package_versions(status: bytes) -> dict[str, str]:
    """Return the package versions in dpkg's list, by name."""
    versions, name = dict[str, str](), ""
    for line in status.decode(errors="replace").split("\n"):
        field, _, value = line.partition(": ")
        if not line:
            name = ""  # a package ends with an empty line
        elif field == "Package":
            name = value
        elif field == "Version" and name:
            versions[name] = value
    return versions


def _time_text(seconds: float) -> str:
    """Format a file's time; if the number is not a valid time, return it as text."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(seconds)
