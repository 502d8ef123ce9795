"""An image as an OCI layout, with docker's ``manifest.json`` beside ``index.json``.

Written with the standard library, such a folder loads on every engine with the same id, where
``docker import`` makes a new id each time and so busts the build cache. Formats: the OCI image
specification (image-layout, manifest, config) and the archive that ``docker save`` writes.
"""

import gzip
import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from imgbuild.files import file_sha256, sha256

_CHUNK = 1 << 20
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class DamagedLayoutError(Exception):
    """A layout that is not what its digests say. Never shown: the layout is made again."""


@dataclass(frozen=True)
class ImageIds:
    """The two digests an engine may call the image's id, each ``sha256:…``."""

    config: str
    """The id on a graph driver. It depends on the files alone, not on how they are compressed."""
    manifest: str
    """The id on a containerd image store."""


@dataclass(frozen=True)
class Blob:
    """A piece of an image: its media type, digest (``sha256:…``) and size in bytes."""

    media_type: str
    digest: str
    size: int

    def descriptor(self, annotations: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the blob as manifests and indexes name it."""
        found = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        return {**found, "annotations": annotations} if annotations else found


def write_layout(folder: Path, rootfs: Path, *, repository: str, tag: str, epoch: int) -> ImageIds:
    """Write the tar file ``rootfs`` as an image into the empty ``folder``; return its ids.

    ``tag`` may hold ``{id}``, which becomes the first 12 digits of the image's id. ``epoch`` is
    the time of creation, in seconds. The same input gives the same bytes.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer, diff_id = _write_layer(blobs, rootfs)
    config = _write_blob(blobs, _CONFIG, _image_config(diff_id, epoch))
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(),
        "layers": [layer.descriptor()],
    }
    top = _write_blob(blobs, MANIFEST, manifest)
    tag = tag.format(id=short_id(config.digest))
    write_json(folder / "index.json", index_document(top, repository, tag))
    write_json(folder / "manifest.json", docker_manifest(config, [layer], f"{repository}:{tag}"))
    write_json(folder / "oci-layout", {"imageLayoutVersion": "1.0.0"})
    return ImageIds(config.digest, top.digest)


def read_layout(folder: Path, *, verify_layer: bool = True) -> tuple[ImageIds, str]:
    """Return the ids and the reference of the image in ``folder``, every digest checked.

    Raises:
        DamagedLayoutError: a file is missing, is not what its digest says, or names another image.

    """
    try:
        top = _only(_read_json(folder / "index.json")["manifests"])
        manifest = json.loads(_verified(folder, top))
        config, layers = manifest["config"], manifest["layers"]
        _verified(folder, config)
        for layer in layers if verify_layer else ():
            _verify_file(folder, layer)
        docker = _only(_read_json(folder / "manifest.json"))
        if docker["Config"] != blob_path(config) or docker["Layers"] != [
            blob_path(layer) for layer in layers
        ]:
            raise DamagedLayoutError(f"{folder}: manifest.json names another image")
        _read_json(folder / "oci-layout")
        return ImageIds(config["digest"], top["digest"]), str(_only(docker["RepoTags"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedLayoutError(f"{folder}: {error}") from error


def write_archive(folder: Path, out: IO[bytes]) -> None:
    """Write the layout as one tar stream for ``docker load``; ``out`` need not be seekable."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            # Made from nothing, not from the file: no owner and no time of this machine.
            info = tarfile.TarInfo(path.relative_to(folder).as_posix())
            if path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            else:
                info.size = path.stat().st_size
                with path.open("rb") as source:
                    archive.addfile(info, source)


def short_id(digest: str) -> str:
    """Return the 12 digits people call an image by."""
    return digest.removeprefix("sha256:")[:12]


def _write_layer(blobs: Path, rootfs: Path) -> tuple[Blob, str]:
    """Write the compressed layer; return it and the digest of what is in it.

    gzip, without name and time: a third of the size in the cache, in each check of it and in a
    push from a containerd store, for 4 s once. Another zlib may give other bytes and so another
    manifest; the config, and with it the image's id on a graph driver, stays.
    """
    plain = hashlib.sha256()
    packed = blobs / "layer"
    with packed.open("wb") as out, gzip.GzipFile("", "wb", 6, out, mtime=0) as stream:
        for chunk in _chunks(rootfs):
            plain.update(chunk)
            stream.write(chunk)
    digest, size = file_sha256(packed), packed.stat().st_size
    packed.rename(blobs / digest)
    return Blob(_LAYER, f"sha256:{digest}", size), f"sha256:{plain.hexdigest()}"


def _write_blob(blobs: Path, media_type: str, value: object) -> Blob:
    content = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    hexadecimal = sha256(content)
    (blobs / hexadecimal).write_bytes(content)
    return Blob(media_type, f"sha256:{hexadecimal}", len(content))


def _image_config(diff_id: str, epoch: int) -> dict[str, Any]:
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {"Env": [_PATH], "Cmd": ["bash"]},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": created, "created_by": "imgbuild: root file system"}],
    }


def index_document(manifest: Blob, repository: str, tag: str) -> dict[str, Any]:
    """Return the ``index.json`` of a layout with one image."""
    # The two names that a containerd store reads; `docker save` writes the same two. The first is
    # the normal form of a name without a registry, not a place that anything is fetched from.
    names = {
        "io.containerd.image.name": f"docker.io/{repository}:{tag}",
        "org.opencontainers.image.ref.name": tag,
    }
    return {"schemaVersion": 2, "manifests": [manifest.descriptor(names)]}


def docker_manifest(config: Blob, layers: Sequence[Blob], reference: str) -> list[dict[str, Any]]:
    """Return the ``manifest.json`` that ``docker load`` reads."""
    config_path, *layer_paths = (blob_path(blob.descriptor()) for blob in (config, *layers))
    return [{"Config": config_path, "RepoTags": [reference], "Layers": layer_paths}]


def write_json(path: Path, value: object) -> None:
    """Write JSON that is the same for the same value."""
    path.write_text(json.dumps(value, sort_keys=True, separators=(",", ":")), encoding="utf-8")


def _read_json(path: Path) -> Any:  # noqa: ANN401
    return json.loads(path.read_bytes())


def _only(values: list[Any]) -> Any:  # noqa: ANN401
    (value,) = values
    return value


def blob_path(descriptor: Mapping[str, Any]) -> str:
    """Return where a layout keeps a blob."""
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def _verified(folder: Path, descriptor: dict[str, Any]) -> bytes:
    """Return the content of a blob whose digest is right."""
    _verify_file(folder, descriptor)
    return (folder / blob_path(descriptor)).read_bytes()


def _verify_file(folder: Path, descriptor: dict[str, Any]) -> None:
    path = folder / blob_path(descriptor)
    if (
        path.stat().st_size != descriptor["size"]
        or f"sha256:{file_sha256(path)}" != descriptor["digest"]
    ):
        raise DamagedLayoutError(f"{path} is not what its digest says")


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
