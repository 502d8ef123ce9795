"""An OCI layout put together from files that are there already: a manifest and its blobs."""

import json
from collections.abc import Callable
from pathlib import Path

from imgbuild.inputs.oci_layout import (
    MANIFEST,
    Blob,
    docker_manifest,
    index_document,
    short_id,
    write_json,
)

REPOSITORY = "imgbuild/base"


def assemble_layout(
    folder: Path, manifest: Path, os_name: str, place: Callable[[str, Path], None]
) -> str:
    """Write the layout of the image with ``manifest`` into ``folder``; return its name.

    ``place(sha256, path)`` puts the file with that sha256 at ``path``. The name holds the image's
    id, so that another image has another name.
    """
    content = manifest.read_bytes()
    document = json.loads(content)
    config, *layers = (_blob(entry) for entry in (document["config"], *document["layers"]))
    top = Blob(document.get("mediaType", MANIFEST), f"sha256:{manifest.name}", len(content))
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for digest in {blob.digest for blob in (top, config, *layers)}:
        sha256 = digest.removeprefix("sha256:")
        place(sha256, blobs / sha256)
    tag = f"{os_name}-{short_id(config.digest)}"
    write_json(folder / "index.json", index_document(top, REPOSITORY, tag))
    write_json(folder / "manifest.json", docker_manifest(config, layers, f"{REPOSITORY}:{tag}"))
    write_json(folder / "oci-layout", {"imageLayoutVersion": "1.0.0"})
    return f"{REPOSITORY}:{tag}"


def _blob(entry: dict[str, str]) -> Blob:
    return Blob(entry["mediaType"], entry["digest"], int(entry["size"]))
