"""``docker save`` archives as the engine in memory reads and writes them."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import BinaryIO

from imgbuild.engine.answers import seconds_of
from imgbuild.engine.stored import StoredImage
from imgbuild.errors import CheckFailedError

#: An image's configuration, and its layers.
Content = tuple[bytes, list[bytes]]


def archived_images(archive: BinaryIO) -> Iterator[tuple[StoredImage, Content]]:
    """Yield the images of an archive; an id is the configuration's sha256."""
    whole = io.BytesIO(archive.read())  # the stream need not seek
    with tarfile.open(fileobj=whole) as tar:
        for entry in json.loads(_member(tar, "manifest.json")):
            config = _member(tar, entry["Config"])
            layers = [_member(tar, name) for name in entry.get("Layers") or ()]
            yield _image(tuple(entry.get("RepoTags") or ()), config), (config, layers)


def image_archive(content: Content) -> bytes:
    """Return the archive of one image without a name."""
    config, layers = content
    names = [f"blobs/{_sha256(layer).replace(':', '/')}" for layer in layers]
    manifest = [{"Config": "config.json", "RepoTags": None, "Layers": names}]
    files = {**dict(zip(names, layers, strict=True)), "config.json": config}
    return _tar({**files, "manifest.json": json.dumps(manifest).encode()})


def made_up(image: StoredImage) -> Content:
    """Return a content for an image that was never loaded: each layer tells its own digest."""
    config = {
        "created": datetime.fromtimestamp(image.created, UTC).isoformat(),
        "config": {"Labels": dict(image.labels)},
        "rootfs": {"diff_ids": [*image.layers]},
    }
    return json.dumps(config).encode(), [_tar({"id": layer.encode()}) for layer in image.layers]


def _image(names: tuple[str, ...], config: bytes) -> StoredImage:
    document = json.loads(config)
    labels = (document.get("config") or {}).get("Labels") or {}
    layers = tuple((document.get("rootfs") or {}).get("diff_ids") or ())
    created = seconds_of(str(document.get("created") or ""))
    return StoredImage(_sha256(config), names, labels, len(config), created, layers)


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    found = tar.extractfile(name)
    if found is None:
        raise CheckFailedError(f"The archive's {name} is not a file.")
    return found.read()


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
