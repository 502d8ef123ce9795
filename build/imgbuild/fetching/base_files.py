"""The base image as files of the store: from its registry, or as it was made on this machine."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from imgbuild.errors import InputError
from imgbuild.fetching.listing import Item, Kind, Listing
from imgbuild.fetching.registry import Blob, find_image
from imgbuild.files import ContentStore, file_sha256, link_or_copy, stored_folder
from imgbuild.inputs.assembled_layout import assemble_layout
from imgbuild.inputs.base import BaseLayout, open_layout
from imgbuild.inputs.oci_layout import blob_path
from imgbuild.sites import Sites


def registry_items(reference: str, sites: Sites, store: Path) -> tuple[Item, ...]:
    """Return the pieces of ``NAME@sha256:DIGEST``, the manifest first; it alone is stored already.

    Raises:
        CheckFailedError: what the registry gave is not what the digest says.
        MachineError: the registry cannot be reached, does not have it, or wants a login.

    """
    image = find_image(reference, sites)
    manifest = _item("manifest.json", image.manifest)
    ContentStore(store).put(manifest.sha256, lambda part: _write(part, image.content))
    layers = [_item(f"layer-{number}", blob) for number, blob in enumerate(image.layers, 1)]
    return (manifest, _item("config.json", image.config), *layers)


def layout_items(layout: BaseLayout, store: Path) -> tuple[Item, ...]:
    """Return the pieces of an image of this machine, manifest first, all copied to ``store``."""
    top = json.loads((layout.path / "index.json").read_bytes())["manifests"][0]
    manifest = json.loads((layout.path / blob_path(top)).read_bytes())
    named = [("manifest.json", top), ("config.json", manifest["config"])]
    named += [(f"layer-{n}", layer) for n, layer in enumerate(manifest["layers"], 1)]
    return tuple(_stored(layout.path, name, entry, store) for name, entry in named)


def fetched_layout(listing: Listing, os_name: str, folder: Path, parent: Path) -> BaseLayout:
    """Return a listing's base image as an OCI layout in ``parent``, of the files in ``folder``."""
    manifest = ContentStore(folder).path(listing.manifest)

    def place(sha256: str, path: Path) -> None:
        link_checked(folder, sha256, path)

    def make(empty: Path) -> None:
        assemble_layout(empty, manifest, os_name, place)

    final = parent / f"{os_name}-{listing.manifest[:12]}"
    return open_layout(stored_folder(final, make, lambda path: (path / "oci-layout").is_file()))


def link_checked(store: Path, sha256: str, target: Path) -> None:
    """Give a file of a fetched folder its place in a build context.

    Raises:
        InputError: it is another one than was fetched.

    """
    source = ContentStore(store).path(sha256)
    if file_sha256(source) != sha256:
        raise InputError(
            f"{source} was damaged since it was fetched. Remove it, run `imgbuild fetch` again "
            "where there is a network, and copy the folder anew."
        )
    link_or_copy(source, target)


def _item(name: str, blob: Blob) -> Item:
    return Item(Kind.BASE, name, blob.url, blob.sha256, blob.size)


def _stored(layout: Path, name: str, entry: dict[str, Any], store: Path) -> Item:
    item = Item(Kind.BASE, name, "", entry["digest"].removeprefix("sha256:"), entry["size"])
    source = layout / blob_path(entry)
    ContentStore(store).put(item.sha256, lambda part: _copy(source, part))
    return item


def _write(part: Path, content: bytes) -> None:
    part.write_bytes(content)


def _copy(source: Path, part: Path) -> None:
    shutil.copyfile(source, part)


def store_file(source: Path, store: Path, kind: Kind, name: str) -> Item:
    """Return a file of this machine as an item, copied to ``store``."""
    item = Item(kind, name, "", file_sha256(source), source.stat().st_size)
    ContentStore(store).put(item.sha256, lambda part: _copy(source, part))
    return item


def store_text(text: str, store: Path, kind: Kind, name: str) -> Item:
    """Return a text as an item, written to ``store``."""
    content = text.encode()
    item = Item(kind, name, "", hashlib.sha256(content).hexdigest(), len(content))
    ContentStore(store).put(item.sha256, lambda part: _write(part, content))
    return item
