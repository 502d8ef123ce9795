"""A base image as files: from its registry, or as it was made on this machine."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.files import ContentStore, file_sha256, link_or_copy, sha256, stored_folder
from imgbuild.inputs.base import REPOSITORY, BaseLayout, open_layout
from imgbuild.inputs.listing import Item, Kind, Listing
from imgbuild.inputs.oci_layout import (
    MANIFEST,
    Blob,
    blob_path,
    docker_manifest,
    index_document,
    short_id,
    write_json,
)
from imgbuild.parallel import in_parallel
from imgbuild.registry.auth import Credentials, LoginError, docker_credentials
from imgbuild.registry.manifest import INDEXES, Manifest
from imgbuild.registry.repository import HUB, RepositoryName
from imgbuild.registry.repository_client import RegistryClient
from imgbuild.sites import Sites

#: The folder of Docker Hub's official images.
_OFFICIAL = "library/"
_CONNECTIONS = 4


@dataclass(frozen=True)
class RegistryImage:
    """An image for linux/amd64 as a registry has it."""

    client: RegistryClient
    manifest: Manifest
    config: Blob
    layers: tuple[Blob, ...]


def find_image(reference: str, sites: Sites) -> RegistryImage:
    """Return the image of ``NAME@sha256:DIGEST``; of several platforms that for linux/amd64.

    Logins are the Docker client's, else those of the netrc file.

    Raises:
        CheckFailedError: the registry's content has another digest.
        MachineError: the registry cannot be reached, does not have it, or wants a login.

    """
    name, _, digest = reference.partition("@")

    def credentials(host: str) -> Credentials | None:
        login = sites.login(f"https://{host}/")
        return docker_credentials(host) or (Credentials(*login) if login else None)

    client = RegistryClient(_repository(name), sites.client(), credentials)
    manifest = _manifest(client, digest, reference)
    document = manifest.document()
    if document.get("mediaType") in INDEXES or "manifests" in document:
        manifest = _manifest(client, _for_this_platform(document, reference), reference)
        document = manifest.document()
    try:
        config, *layers = map(_layer_blob, (document["config"], *document["layers"]))
    except (KeyError, TypeError) as error:
        raise MachineError(f"{reference}: its manifest is of a kind that is too old.") from error
    return RegistryImage(client, manifest, config, tuple(layers))


def _repository(name: str) -> RepositoryName:
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return RepositoryName(first, rest.split(":")[0])
    official = "" if slash else _OFFICIAL
    return RepositoryName(HUB, official + name.split(":", maxsplit=1)[0])


def _manifest(client: RegistryClient, digest: str, reference: str) -> Manifest:
    try:
        manifest = client.manifest(digest)
    except LoginError as error:
        raise MachineError(f"{error} A netrc file (settings: netrc) is read too.") from None
    if manifest is None:
        raise MachineError(f"{reference}: the registry does not have it.")
    return manifest


def _for_this_platform(index: Mapping[str, Any], reference: str) -> str:
    for entry in index["manifests"]:
        platform = entry.get("platform", {})
        if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
            return str(entry["digest"])
    raise CheckFailedError(f"{reference} is no image for linux/amd64.")


def registry_items(reference: str, sites: Sites, store: Path) -> tuple[Item, ...]:
    """Return the pieces of ``NAME@sha256:DIGEST``, the manifest first; it alone is stored already.

    Raises:
        CheckFailedError: the registry's content has another digest.
        MachineError: the registry cannot be reached, does not have it, or wants a login.

    """
    image = find_image(reference, sites)
    digest, size = image.manifest.digest.removeprefix("sha256:"), len(image.manifest.content)
    ContentStore(store).put(digest, lambda part: _write(part, image.manifest.content))
    named = [("config.json", image.config)]
    named += [(f"layer-{number}", layer) for number, layer in enumerate(image.layers, 1)]
    return (
        Item(Kind.BASE, "manifest.json", reference, digest, size),
        *(
            Item(Kind.BASE, name, reference, blob.digest.removeprefix("sha256:"), blob.size)
            for name, blob in named
        ),
    )


def fetch_blobs(reference: str, items: Sequence[Item], sites: Sites, store: ContentStore) -> None:
    """Fetch pieces of the image ``NAME@sha256:DIGEST`` into ``store``.

    Raises:
        CheckFailedError: the registry's content has another digest.
        MachineError: the registry cannot be reached, or the store cannot be written.

    """
    image = find_image(reference, sites)

    def fetch(item: Item) -> Path:
        def make(part: Path) -> None:
            digest = f"sha256:{item.sha256}"
            own = digest == image.manifest.digest
            part.write_bytes(image.manifest.content if own else image.client.blob(digest))

        return store.put(item.sha256, make, item.size, name=item.name)

    in_parallel(fetch, items, _CONNECTIONS, stop=image.client.close)


def layout_items(layout: BaseLayout, store: Path) -> tuple[Item, ...]:
    """Return the pieces of an image of this machine, manifest first, all copied to ``store``."""
    top = json.loads((layout.path / "index.json").read_bytes())["manifests"][0]
    manifest = json.loads((layout.path / blob_path(top)).read_bytes())
    named = [("manifest.json", top), ("config.json", manifest["config"])]
    named += [(f"layer-{n}", layer) for n, layer in enumerate(manifest["layers"], 1)]
    return tuple(_stored(layout.path, name, entry, store) for name, entry in named)


def fetched_layout(listing: Listing, os_name: str, folder: Path, parent: Path) -> BaseLayout:
    """Return a listing's base image as an OCI layout in ``parent``, of the files in ``folder``."""

    def make(empty: Path) -> None:
        _assemble(empty, ContentStore(folder), listing.manifest, os_name)

    final = parent / f"{os_name}-{listing.manifest[:12]}"
    return open_layout(stored_folder(final, make, lambda path: (path / "oci-layout").is_file()))


def link_checked(store: ContentStore, digest: str, target: Path) -> None:
    """Give a file of a fetched folder its place in a build context.

    Raises:
        InputError: it is another one than was fetched.

    """
    source = store.path(digest)
    if file_sha256(source) != digest:
        raise InputError(
            f"{source} was damaged since it was fetched. Remove it, run `imgbuild fetch` again "
            "where there is a network, and copy the folder anew."
        )
    link_or_copy(source, target)


def _stored(layout: Path, name: str, entry: dict[str, Any], store: Path) -> Item:
    item = Item(Kind.BASE, name, "", entry["digest"].removeprefix("sha256:"), entry["size"])
    source = layout / blob_path(entry)
    ContentStore(store).put(item.sha256, lambda part: shutil.copyfile(source, part))
    return item


def _write(part: Path, content: bytes) -> None:
    part.write_bytes(content)


def store_file(source: Path, store: Path, kind: Kind, name: str) -> Item:
    """Return a file of this machine as an item, copied to ``store``."""
    item = Item(kind, name, "", file_sha256(source), source.stat().st_size)
    ContentStore(store).put(item.sha256, lambda part: shutil.copyfile(source, part))
    return item


def store_text(text: str, store: Path, kind: Kind, name: str) -> Item:
    """Return a text as an item, written to ``store``."""
    content = text.encode()
    item = Item(kind, name, "", sha256(content), len(content))
    ContentStore(store).put(item.sha256, lambda part: _write(part, content))
    return item


def _assemble(folder: Path, store: ContentStore, manifest: str, os_name: str) -> None:
    """Write the layout of the image whose manifest has this sha256 into ``folder``.

    Its tag holds the image's id, so that another image has another name.
    """
    content = store.path(manifest).read_bytes()
    document = json.loads(content)
    config, *layers = map(_layer_blob, (document["config"], *document["layers"]))
    top = Blob(document.get("mediaType", MANIFEST), f"sha256:{manifest}", len(content))
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for digest in {blob.digest.removeprefix("sha256:") for blob in (top, config, *layers)}:
        link_checked(store, digest, blobs / digest)
    tag = f"{os_name}-{short_id(config.digest)}"
    write_json(folder / "index.json", index_document(top, REPOSITORY, tag))
    write_json(folder / "manifest.json", docker_manifest(config, layers, f"{REPOSITORY}:{tag}"))
    write_json(folder / "oci-layout", {"imageLayoutVersion": "1.0.0"})


def _layer_blob(entry: Mapping[str, Any]) -> Blob:
    return Blob(entry["mediaType"], entry["digest"], int(entry["size"]))
