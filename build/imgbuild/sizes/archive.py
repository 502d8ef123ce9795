"""The stream of ``docker save`` → the layers of one image, in one pass and without a file.

Three shapes are read: that of engines before 25 (``ID/layer.tar``), that of later ones (an OCI
layout whose layers are plain tar archives, and ``manifest.json``), and that of engines that keep
images in containerd (layers may be packed; ``manifest.json`` may be missing).
"""

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from imgbuild.errors import MachineError
from imgbuild.sizes.layer import Layer, read_layer

#: Manifests and configurations are some kB; a larger member that starts like JSON is no layer.
_LONGEST_DOCUMENT = 8 * 1024 * 1024
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_DAMAGE = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, KeyError, TypeError)


@dataclass(frozen=True)
class SavedLayer:
    """A layer's place in an image: its ``diff_id`` (the sha256 of its tar), and what made it."""

    diff_id: str
    made_by: str


@dataclass(frozen=True)
class SavedImage:
    """One image as it was saved: the lowest layer first, and the content of each by diff id."""

    layers: tuple[SavedLayer, ...]
    contents: Mapping[str, Layer]


@dataclass
class _Members:
    """What is worth keeping of the stream: which member is what is only known at its end."""

    documents: dict[str, Any] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


class _Chunks(io.RawIOBase):
    """Pieces of bytes as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a buffer of any kind
        while not self._left:
            try:
                self._left = next(self._chunks)
            except StopIteration:
                return 0
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def read_archive(chunks: Iterable[bytes], name: str) -> SavedImage:
    """Return the image that ``chunks`` are the archive of; ``name`` is for errors.

    Raises:
        MachineError: the archive is damaged or ends too early.

    """
    members = _Members()
    try:
        with tarfile.open(fileobj=io.BufferedReader(_Chunks(chunks), 1 << 20), mode="r|") as tar:
            for member in tar:
                _take(tar, member, members)
        return _assemble(members)
    except _DAMAGE as error:
        raise MachineError(
            f"What the engine saves of {name} cannot be read: {type(error).__name__}: {error}. Try "
            "again; if it stays so, the engine's store is damaged: remove the image and build it."
        ) from error


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, members: _Members) -> None:
    if member.issym() or member.islnk():  # old engines save a layer once and link to it
        folder = member.name.rpartition("/")[0] if member.issym() else ""
        members.links[member.name] = _joined(folder, member.linkname)
        return
    file = tar.extractfile(member) if member.isfile() else None
    if file is None:
        return
    start = file.peek(512)[:512] if isinstance(file, io.BufferedReader) else b""
    if start[:1] in {b"{", b"["} and member.size <= _LONGEST_DOCUMENT:
        members.documents[member.name] = _document(file.read())
    elif layer := _layer(file, start):
        members.layers[member.name] = layer


def _joined(folder: str, target: str) -> str:
    parts = folder.split("/") if folder else []
    for part in target.split("/"):
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def _document(content: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return json.loads(content)
    except ValueError:
        return None  # of no use: what needs it says that it is missing


def _layer(file: IO[bytes], start: bytes) -> Layer | None:
    """Return a member as a layer; None if it is something else, such as a short text."""
    if start.startswith(_GZIP):
        with gzip.open(file) as unpacked:
            return read_layer(unpacked)  # type: ignore[arg-type]
    if start.startswith(_ZSTD):
        from imgbuild.zstd import unpacked as open_zstd  # noqa: PLC0415 - most layers are not

        with open_zstd(file) as unpacked:
            return read_layer(unpacked)
    if start[257:262] == b"ustar" or (len(start) == 512 and not any(start)):
        return read_layer(file)
    return None


def _assemble(members: _Members) -> SavedImage:
    config_name, names = _manifest(members)
    config = members.documents[config_name]
    diff_ids = config["rootfs"]["diff_ids"]
    if len(diff_ids) != len(names):
        raise ValueError(f"{len(names)} layers, but {len(diff_ids)} in its configuration")
    made_by = _history(config, len(diff_ids))
    found = [members.layers[members.links.get(name, name)] for name in names]
    layers = tuple(SavedLayer(one, by) for one, by in zip(diff_ids, made_by, strict=True))
    return SavedImage(layers, dict(zip(diff_ids, found, strict=True)))


def _manifest(members: _Members) -> tuple[str, list[str]]:
    """Return the member with the configuration, and those with the layers."""
    docker = members.documents.get("manifest.json")
    if docker:
        return docker[0]["Config"], docker[0]["Layers"]
    manifest = _oci_manifest(members, members.documents["index.json"])
    return _blob(manifest["config"]), [_blob(one) for one in manifest["layers"]]


def _oci_manifest(members: _Members, document: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the first image manifest of an index; attestations are of no platform."""
    if "layers" in document:
        return document
    for one in document["manifests"]:
        inner = members.documents.get(_blob(one))
        of_no_platform = one.get("platform", {}).get("os") == "unknown"
        if inner and not of_no_platform:
            return _oci_manifest(members, inner)
    raise ValueError("it has no image manifest")


def _blob(descriptor: Mapping[str, str]) -> str:
    return "blobs/" + descriptor["digest"].replace(":", "/")


def _history(config: Mapping[str, Any], count: int) -> list[str]:
    """Return what made each layer; empty texts where the history does not fit the layers."""
    steps = [one for one in config.get("history") or () if not one.get("empty_layer")]
    made_by = [str(one.get("created_by") or one.get("comment") or "") for one in steps]
    return made_by if len(made_by) == count else [""] * count
