"""Base images as OCI layouts, with docker's ``manifest.json`` beside ``index.json``.

Such a folder loads on every engine with the same id, where ``docker import`` makes a new id each
time and so busts the build cache. Formats: the OCI image specification (image-layout, manifest,
config) and the archive that ``docker save`` writes.
"""

import gzip
import json
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from imgbuild.errors import InputError
from imgbuild.files import file_sha256, sha256

REPOSITORY = "imgbuild/base"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CHUNK = 1 << 20
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: A blob as manifests name it: its mediaType, digest (``sha256:…``) and size in bytes.
Descriptor = Mapping[str, Any]


class DamagedLayoutError(Exception):
    """A layout that is not what its digests say. Never shown: the layout is made again."""


@dataclass(frozen=True)
class BaseLayout:
    """A base image on disk, ready for an engine."""

    path: Path
    """OCI layout folder (``oci-layout://``), which also holds docker's ``manifest.json``."""
    image_id: str
    """Digest of the config: the image's id on a graph driver. ``sha256:…``.

    It depends on the files alone, not on how they are compressed.
    """
    reference: str
    """``imgbuild/base:<os>-<12 digits of image_id>``: another content has another name."""


def write_layout(folder: Path, rootfs: Path, *, tag: str, epoch: int) -> None:
    """Write the tar file ``rootfs`` as an image into ``folder``; the same input, the same bytes.

    ``epoch`` is the time of creation, in seconds; ``tag`` is that of `name_image`.
    """
    (folder / "blobs" / "sha256").mkdir(parents=True)
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {"Env": [_PATH], "Cmd": ["bash"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{file_sha256(rootfs)}"]},
        "history": [{"created": created, "created_by": "imgbuild: root file system"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _write_blob(folder, _CONFIG, config),
        "layers": [_write_layer(folder, rootfs)],
    }
    name_image(folder, _write_blob(folder, MANIFEST, manifest), manifest, tag)


def name_image(folder: Path, top: Descriptor, manifest: Mapping[str, Any], tag: str) -> None:
    """Write what names the image of ``folder``, whose manifest is the blob ``top``.

    ``{id}`` in ``tag`` becomes the first 12 digits of the image's id.
    """
    config, *layers = (blob_path(one) for one in (manifest["config"], *manifest["layers"]))
    tag = tag.format(id=short_id(manifest["config"]["digest"]))
    # The two names that a containerd store reads; `docker save` writes the same two. The first is
    # the normal form of a name without a registry, not a place that anything is fetched from.
    names = {
        "io.containerd.image.name": f"docker.io/{REPOSITORY}:{tag}",
        "org.opencontainers.image.ref.name": tag,
    }
    index = {"schemaVersion": 2, "manifests": [{**top, "annotations": names}]}
    docker = [{"Config": config, "RepoTags": [f"{REPOSITORY}:{tag}"], "Layers": layers}]
    (folder / "index.json").write_bytes(_json(index))
    (folder / "manifest.json").write_bytes(_json(docker))
    (folder / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))


def read_layout(folder: Path, *, verify_layer: bool = True) -> BaseLayout:
    """Return the image in ``folder``, every digest checked, that of the layer if so wanted.

    Raises:
        DamagedLayoutError: a file is missing, is not what its digest says, or names another image.

    """
    try:
        (top,) = json.loads((folder / "index.json").read_bytes())["manifests"]
        _verify(folder, top)
        manifest = json.loads((folder / blob_path(top)).read_bytes())
        config, layers = manifest["config"], manifest["layers"]
        for one in (config, *layers) if verify_layer else (config,):
            _verify(folder, one)
        (docker,) = json.loads((folder / "manifest.json").read_bytes())
        if [docker["Config"], *docker["Layers"]] != [blob_path(one) for one in (config, *layers)]:
            raise DamagedLayoutError(f"{folder}: manifest.json names another image")
        json.loads((folder / "oci-layout").read_bytes())
        (reference,) = docker["RepoTags"]
        return BaseLayout(folder, config["digest"], reference)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedLayoutError(f"{folder}: {error}") from error


def open_layout(folder: Path) -> BaseLayout:
    """Return the base image in an OCI layout of this machine; its layer is not read.

    Raises:
        InputError: it is no whole layout of one image.

    """
    try:
        return read_layout(folder, verify_layer=False)
    except DamagedLayoutError as error:
        raise InputError(f"{folder} is no OCI layout of a base image: {error}") from error


def write_archive(folder: Path, target: Path) -> None:
    """Write the layout as the tar that ``docker load`` reads."""
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
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


def blob_path(descriptor: Descriptor) -> str:
    """Return where a layout keeps a blob."""
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def _write_layer(folder: Path, rootfs: Path) -> Descriptor:
    """Write the compressed layer.

    gzip, without name and time: a third of the size in the cache, in each check of it and in a
    push from a containerd store, for 4 s once. Another zlib may give other bytes and so another
    manifest; the config, and with it the image's id on a graph driver, stays.
    """
    packed = folder / "blobs" / "layer"
    with (
        rootfs.open("rb") as source,
        packed.open("wb") as out,
        gzip.GzipFile("", "wb", 6, out, mtime=0) as stream,
    ):
        shutil.copyfileobj(source, stream, _CHUNK)
    layer = {
        "mediaType": _LAYER,
        "digest": f"sha256:{file_sha256(packed)}",
        "size": packed.stat().st_size,
    }
    packed.rename(folder / blob_path(layer))
    return layer


def _write_blob(folder: Path, media_type: str, value: object) -> Descriptor:
    content = _json(value)
    blob = {"mediaType": media_type, "digest": f"sha256:{sha256(content)}", "size": len(content)}
    (folder / blob_path(blob)).write_bytes(content)
    return blob


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _verify(folder: Path, descriptor: Descriptor) -> None:
    path = folder / blob_path(descriptor)
    found = (path.stat().st_size, f"sha256:{file_sha256(path)}")
    if found != (descriptor["size"], descriptor["digest"]):
        raise DamagedLayoutError(f"{path} is not what its digest says")
