"""Read and write base images as OCI layouts that also have Docker's ``manifest.json``.

An image from such a folder has the same id each time an engine loads it. With ``docker import``, it
would have a new id each time, which invalidates the build cache. Formats: the OCI image
specification (image-layout, manifest, config) and the archive that ``docker save`` writes.
"""

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from imgbuild.core.errors import InputError
from imgbuild.core.files import file_sha256, parse_strict_json, work_folder
from imgbuild.inputs.base import LAYOUT, Base
from imgbuild.inputs.download import has_sha256
from imgbuild.matrix.evidence import Architecture
from imgbuild.net.repository import OCI_MANIFEST, descriptor

REPOSITORY = "imgbuild/base"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The files of a layout, and Docker's manifest. Source: OCI image specification, image-layout.md.
_FILE = re.compile(r"index\.json|manifest\.json|oci-layout|blobs/sha256/[0-9a-f]{64}")


def write_layout(
    folder: Path, rootfs: Path, *, name: str, epoch: int, architecture: Architecture = "amd64"
) -> None:
    """Write the tar file ``rootfs`` as an image to ``folder``; the same input gives the same bytes.

    ``epoch`` is the time of creation, in seconds. ``name`` is as in `name_image`.
    """
    date = datetime.fromtimestamp(epoch, UTC)
    created = date.strftime("%Y-%m-%dT%H:%M:%SZ")
    diff_id = f"sha256:{file_sha256(rootfs)}"
    step = {"created": created, "created_by": "imgbuild: root file system"}
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {"Env": [_PATH], "Cmd": ["bash"]},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [step],
    }
    written_config = _write_blob(folder, _CONFIG, _json(config))
    layer = _write_layer(folder, rootfs)
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": written_config,
        "layers": [layer],
    }
    name_image(folder, _json(manifest), name)


def name_image(folder: Path, content: bytes, name: str) -> None:
    """Write the manifest ``content`` of the image in ``folder``, and the files that name the image.

    The tag of the image is ``name`` and the first 12 digits of the image id.
    """
    manifest = parse_strict_json(content)
    media_type = manifest.get("mediaType", OCI_MANIFEST)
    top = _write_blob(folder, media_type, content)
    config, *layers = _blobs(manifest)
    image_id = manifest["config"]["digest"]
    tag = f"{name}-{short_id(image_id)}"
    reference = f"{REPOSITORY}:{tag}"
    # A containerd store reads these two names, and `docker save` writes them. The first is the
    # normal form of a name without a registry. Nothing is pulled from there.
    names = {
        "io.containerd.image.name": f"docker.io/{reference}",
        "org.opencontainers.image.ref.name": tag,
    }
    index = {"schemaVersion": 2, "manifests": [{**top, "annotations": names}]}
    docker = [{"Config": config, "RepoTags": [reference], "Layers": layers}]
    version = {"imageLayoutVersion": "1.0.0"}
    (folder / "index.json").write_bytes(_json(index))
    (folder / "manifest.json").write_bytes(_json(docker))
    (folder / "oci-layout").write_bytes(_json(version))


def read_layout(folder: Path, *, verify_layer: bool = True, origin: str = LAYOUT) -> Base:
    """Return the image in ``folder`` after checking its digests; check layers if ``verify_layer``.

    The reference is ``imgbuild/base:<os>-<12 digits of the id>``, so an image with other files has
    another name.

    InputError: a file is missing, does not match its digest, or names another image.
    """
    try:
        top = _read_top(folder)
        _verify(folder, top)
        manifest = _read_json(folder, blob_path(top["digest"]))
        layers = manifest["layers"] if verify_layer else ()
        for blob in (manifest["config"], *layers):
            _verify(folder, blob)
        (docker,) = _read_json(folder, "manifest.json")
        named = [docker["Config"], *docker["Layers"]]
        if named != _blobs(manifest):
            raise ValueError("manifest.json names another image")  # noqa: TRY301
        _read_json(folder, "oci-layout")
        (reference,) = docker["RepoTags"]
        image_id = manifest["config"]["digest"]
        return Base(reference, image_id, origin, folder, engine_ids=(image_id, top["digest"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{folder} is not a complete OCI layout of a base image: {error}"
        ) from error


def is_whole(folder: Path) -> bool:
    """Return whether ``folder`` is a complete layout with correct digests, including layers."""
    with suppress(InputError):
        return bool(read_layout(folder))
    return False


def is_pinned(folder: Path, digest: str) -> bool:
    """Return whether ``digest`` identifies the image of a complete layout.

    It can be the digest of the image's manifest, or of a list of platforms that names the manifest
    and is stored as a blob.
    """
    top = _read_top(folder)
    path = folder / blob_path(digest)
    if not path.is_file() or not has_sha256(path, digest.removeprefix("sha256:")):
        return False
    content = parse_strict_json(path.read_bytes())
    platforms = content.get("manifests", ())
    digests = {digest}
    digests.update(platform["digest"] for platform in platforms)
    return top["digest"] in digests


def is_named(folder: Path, name: str) -> bool:
    """Return whether a complete layout has the names that `name_image` writes.

    With these names, loading the layout moves no other tag.
    """
    top = _read_top(folder)
    manifest = folder / blob_path(top["digest"])
    with work_folder("names") as named:
        name_image(named, manifest.read_bytes(), name)
        for expected in named.iterdir():
            if not expected.is_file():
                continue
            path = folder / expected.name
            if path.read_bytes() != expected.read_bytes():
                return False
    return True


def write_archive(folder: Path, target: Path) -> None:
    """Write the layout as a tar for ``docker load``; the same layout gives the same bytes."""

    def of_nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name, filter=of_nobody)


def unpack_archive(archive: Path, folder: Path) -> None:
    """Extract the layout from an archive of ``docker save``, without any other files."""
    with tarfile.open(archive, "r:") as tar:  # engines do not compress the archive as a whole
        # `_FILE` admits no name outside the folder. Python before 3.11.4 has no filters for this.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        files = [member for member in tar if member.isreg() and _FILE.fullmatch(member.name)]
        tar.extractall(folder, files)  # noqa: S202


def short_id(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def write_blob(folder: Path, digest: str, content: bytes) -> None:
    path = folder / blob_path(digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _blobs(manifest: Mapping[str, Any]) -> list[str]:
    blobs = [manifest["config"], *manifest["layers"]]
    return [blob_path(blob["digest"]) for blob in blobs]


def _read_top(folder: Path) -> Any:  # noqa: ANN401 - as it is written
    """Return the descriptor of the one manifest that ``index.json`` lists."""
    index = _read_json(folder, "index.json")
    (top,) = index["manifests"]
    return top


def _read_json(folder: Path, name: str) -> Any:  # noqa: ANN401 - as it is written
    content = (folder / name).read_bytes()
    return parse_strict_json(content)


def _write_layer(folder: Path, rootfs: Path) -> dict[str, Any]:
    """Write the compressed layer; return its descriptor.

    The gzip header has no name and no time. Another version of zlib may write other bytes, which
    changes the manifest. The config, and so the image id on a graph driver, stays the same.
    """
    packed = folder / "blobs" / "layer"
    with (
        rootfs.open("rb") as source,
        packed.open("wb") as out,
        gzip.GzipFile("", "wb", 6, out, mtime=0) as stream,
    ):
        shutil.copyfileobj(source, stream, 1 << 20)
    digest = f"sha256:{file_sha256(packed)}"
    size = packed.stat().st_size
    packed.rename(folder / blob_path(digest))
    return {"mediaType": _LAYER, "digest": digest, "size": size}


def _write_blob(folder: Path, media_type: str, content: bytes) -> dict[str, Any]:
    described = descriptor(media_type, content)
    write_blob(folder, described["digest"], content)
    return described


def _json(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return text.encode()


def _verify(folder: Path, blob: Mapping[str, Any]) -> None:
    path = folder / blob_path(blob["digest"])
    digest = blob["digest"].removeprefix("sha256:")
    if path.stat().st_size != blob["size"] or not has_sha256(path, digest):
        raise ValueError(f"{path} does not match its digest")
