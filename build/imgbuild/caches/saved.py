"""Reading what ``docker save`` gives, as it comes: nothing of it is put on the disk twice."""

import io
import json
import posixpath
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from imgbuild.caches.blobs import Blob, BlobStore
from imgbuild.caches.protocol import CacheError
from imgbuild.caches.stream import as_file

#: Configurations and manifests are smaller; only a layer is larger.
_DOCUMENT = 1 << 20


@dataclass(frozen=True)
class SavedImage:
    """An image's configuration, and its layers in the store by the digest of their tar file."""

    config: bytes
    layers: Mapping[str, Blob]

    @property
    def labels(self) -> Mapping[str, str]:
        """What the image says of itself."""
        return labels_of(self.config)


def labels_of(config: bytes) -> dict[str, str]:
    """Return the labels of an image's configuration."""
    return (json.loads(config).get("config") or {}).get("Labels") or {}


def diff_ids(config: bytes) -> list[str]:
    """Return the digests of the layers' tar files, the lowest first."""
    return [str(one) for one in json.loads(config)["rootfs"]["diff_ids"]]


@dataclass
class _Archive:
    """What has come so far: small members whole, layers in the store, links, known layers."""

    store: BlobStore
    known: Mapping[str, Blob]
    small: dict[str, bytes] = field(default_factory=dict)
    stored: dict[str, Blob] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = posixpath.normpath(member.name)
        content = tar.extractfile(member) if member.isreg() else None
        if member.issym():  # engines before 25 write a layer that came before so
            target = posixpath.join(posixpath.dirname(name), member.linkname)
            self.links[name] = posixpath.normpath(target)
        elif content and member.size <= _DOCUMENT:
            self.small[name] = content.read()
        elif content and f"sha256:{posixpath.basename(name)}" not in self.known:
            self.stored[name] = self.store.add_layer(content)  # type: ignore[arg-type]

    def image(self) -> SavedImage:
        (entry,) = json.loads(self.small["manifest.json"])
        config = self.small[entry["Config"]]
        pairs = zip(diff_ids(config), entry["Layers"] or (), strict=True)
        return SavedImage(config, {diff_id: self._layer(diff_id, name) for diff_id, name in pairs})

    def _layer(self, diff_id: str, name: str) -> Blob:
        if diff_id in self.known:
            return self.known[diff_id]
        name = self.links.get(name, name)
        if name in self.small:
            return self.store.add_layer(io.BytesIO(self.small[name]))
        return self.stored[name]


def keep_saved(pieces: Iterable[bytes], store: BlobStore, known: Mapping[str, Blob]) -> SavedImage:
    """Read an archive of one image and keep its layers; ``known`` ones are not packed again.

    Raises:
        CacheError: it is no archive of one image.

    """
    archive = _Archive(store, known)
    try:
        stream: Any = as_file(pieces)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                archive.take(tar, member)
        return archive.image()
    except (tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise CacheError(f"what the engine saves of an image is not understood: {error}") from error


def only_layer(pieces: Iterable[bytes]) -> BinaryIO:
    """Return the layer of an archive of one image with one layer, in memory.

    Raises:
        CacheError: it is no such archive.

    """
    try:
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
            (entry,) = json.loads(_member(tar, "manifest.json"))
            (layer,) = entry["Layers"]
            return io.BytesIO(_member(tar, layer))
    except (tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise CacheError(f"what the engine saves of a file is not understood: {error}") from error


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    content = tar.extractfile(name)
    return content.read() if content else b""
