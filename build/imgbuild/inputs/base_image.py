"""The pieces of a base image for a fetched folder: from its registry, or from this machine."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import ContentStore, sha256
from imgbuild.inputs.fetched import Item, Kind
from imgbuild.inputs.oci_layout import BaseLayout, Descriptor, blob_path
from imgbuild.parallel import in_parallel
from imgbuild.registry.auth import LoginError, docker_credentials
from imgbuild.registry.repository import HUB, INDEXES, Manifest, RepositoryName
from imgbuild.registry.repository_client import RegistryClient
from imgbuild.settings import Credentials, Sites

#: The folder of Docker Hub's official images.
_OFFICIAL = "library/"
_CONNECTIONS = 4


@dataclass(frozen=True)
class RegistryImage:
    """An image for linux/amd64 as a registry has it."""

    client: RegistryClient
    manifest: Manifest
    layers: tuple[Descriptor, ...]


def find_image(reference: str, sites: Sites) -> RegistryImage:
    """Return the image of ``NAME@sha256:DIGEST``; of several platforms that for linux/amd64.

    Logins are the Docker client's, else those of the netrc file.

    Raises:
        CheckFailedError: the registry's content has another digest.
        MachineError: the registry cannot be reached, does not have it, or wants a login.

    """
    name, _, digest = reference.partition("@")

    def credentials(host: str) -> Credentials | None:
        return docker_credentials(host) or sites.login(f"https://{host}/")

    client = RegistryClient(_repository(name), sites.client(), credentials)
    manifest = _manifest(client, digest, reference)
    document = manifest.document()
    if document.get("mediaType") in INDEXES or "manifests" in document:
        manifest = _manifest(client, _for_this_platform(document, reference), reference)
        document = manifest.document()
    if "config" not in document or "layers" not in document:
        raise MachineError(f"{reference}: its manifest is of a kind that is too old.")
    return RegistryImage(client, manifest, tuple(document["layers"]))


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


def registry_items(reference: str, sites: Sites, store: ContentStore) -> tuple[Item, ...]:
    """Return the pieces of ``NAME@sha256:DIGEST``, the manifest first; it alone is stored already.

    Raises:
        CheckFailedError: the registry's content has another digest.
        MachineError: the registry cannot be reached, does not have it, or wants a login.

    """
    content = find_image(reference, sites).manifest.content
    manifest, *others = _items(reference, content)
    store.put(manifest.sha256, lambda part: part.write_bytes(content))
    return manifest, *others


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


def layout_items(layout: BaseLayout, store: ContentStore) -> tuple[Item, ...]:
    """Return the pieces of an image of this machine, manifest first, all copied to ``store``."""
    (top,) = json.loads((layout.path / "index.json").read_bytes())["manifests"]
    items = _items("", (layout.path / blob_path(top)).read_bytes())
    for item in items:
        source = layout.path / blob_path({"digest": f"sha256:{item.sha256}"})
        store.put(item.sha256, partial(shutil.copyfile, source))
    return items


def _items(reference: str, manifest: bytes) -> tuple[Item, ...]:
    """Return the manifest and what it names."""
    document = json.loads(manifest)
    named = {"config.json": document["config"]}
    named |= {f"layer-{number}": layer for number, layer in enumerate(document["layers"], 1)}
    return (
        Item(Kind.BASE, "manifest.json", reference, sha256(manifest), len(manifest)),
        *(
            Item(Kind.BASE, name, reference, blob["digest"].removeprefix("sha256:"), blob["size"])
            for name, blob in named.items()
        ),
    )
