"""Archives for ``docker load``: an OCI layout of several images, which share their layers.

Docker's own ``manifest.json`` stands beside ``index.json``, so that every engine reads it.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.caches.blobs import Blob
from imgbuild.caches.stream import CHUNK, read_pieces

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True)
class Part:
    """A blob and where its bytes are."""

    blob: Blob
    content: bytes | Path


@dataclass(frozen=True)
class LoadableImage:
    """An image for the archive, with a name or without."""

    config: Part
    layers: tuple[Part, ...]
    reference: str | None = None


def part_of(content: bytes, media_type: str) -> Part:
    """Return bytes as a part."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return Part(Blob(media_type, digest, len(content)), content)


def archive(images: Sequence[LoadableImage]) -> Iterator[bytes]:
    """Yield the tar file, piece by piece; a part that several images have is in it once."""
    manifests = [part_of(_json(_manifest(image)), MANIFEST) for image in images]
    parts = {
        part.blob.digest: part
        for image, manifest in zip(images, manifests, strict=True)
        for part in (manifest, image.config, *image.layers)
    }
    for part in parts.values():
        yield from _member(_path(part), part.content)
    tops = [_top(image, one) for image, one in zip(images, manifests, strict=True)]
    yield from _member("index.json", _json({"schemaVersion": 2, "manifests": tops}))
    yield from _member("manifest.json", _json([_docker(image) for image in images]))
    yield from _member("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _manifest(image: LoadableImage) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": image.config.blob.descriptor(),
        "layers": [layer.blob.descriptor() for layer in image.layers],
    }


def _top(image: LoadableImage, manifest: Part) -> dict[str, Any]:
    found = manifest.blob.descriptor()
    if image.reference is None:
        return found
    tag = image.reference.rpartition(":")[2]
    names = {
        "io.containerd.image.name": image.reference,
        "org.opencontainers.image.ref.name": tag,
    }
    return {**found, "annotations": names}


def _docker(image: LoadableImage) -> dict[str, Any]:
    return {
        "Config": _path(image.config),
        "RepoTags": [image.reference] if image.reference else None,
        "Layers": [_path(layer) for layer in image.layers],
    }


def _path(part: Part) -> str:
    return f"blobs/{part.blob.digest.replace(':', '/')}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _member(name: str, content: bytes | Path) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content) if isinstance(content, bytes) else content.stat().st_size
    yield info.tobuf(tarfile.USTAR_FORMAT if info.size < 1 << 33 else tarfile.GNU_FORMAT)
    if isinstance(content, bytes):
        yield from (content[at : at + CHUNK] for at in range(0, len(content), CHUNK))
    else:
        with content.open("rb") as file:
            yield from read_pieces(file)
    yield bytes(-info.size % tarfile.BLOCKSIZE)
