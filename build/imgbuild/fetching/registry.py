"""A base image out of a registry, by digest: the Docker Registry HTTP API V2, as OCI wrote it down.

Every manifest is checked against the digest it was asked by, every blob by the store.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.http import Answer, is_loopback
from imgbuild.registry.auth import read_challenges
from imgbuild.registry.manifest import ACCEPT, INDEXES, digest_of
from imgbuild.registry.repository import HUB_REGISTRY
from imgbuild.sites import Sites

#: The folder of Docker Hub's official images.
_OFFICIAL = "library/"


@dataclass(frozen=True)
class Blob:
    """One piece of an image: its address, digest (``sha256:…``) and size in bytes."""

    url: str
    digest: str
    size: int

    @property
    def sha256(self) -> str:
        """The digest without its algorithm."""
        return self.digest.removeprefix("sha256:")


@dataclass(frozen=True)
class RegistryImage:
    """An image for linux/amd64 as a registry has it.

    ``headers`` are those that its blobs have to be asked with: they may hold a token.
    """

    manifest: Blob
    content: bytes
    config: Blob
    layers: tuple[Blob, ...]
    headers: Mapping[str, str]


def find_image(reference: str, sites: Sites) -> RegistryImage:
    """Return the image of ``NAME@sha256:DIGEST``; of several platforms that for linux/amd64.

    Raises:
        CheckFailedError: what the registry gave is not what the digest says.
        MachineError: the registry cannot be reached, does not have it, or wants a login.

    """
    name, _, digest = reference.partition("@")
    root = _root(name)
    headers = {**ACCEPT, **_authorization(f"{root}/manifests/{digest}", reference, sites)}
    content = _manifest(root, digest, reference, sites, headers)
    document = json.loads(content)
    if document.get("mediaType") in INDEXES or "manifests" in document:
        digest = _for_this_platform(document, reference)
        content = _manifest(root, digest, reference, sites, headers)
        document = json.loads(content)
    try:
        config, *layers = (
            _blob(root, entry) for entry in (document["config"], *document["layers"])
        )
    except (KeyError, TypeError) as error:
        raise MachineError(f"{reference}: its manifest is of a kind that is too old.") from error
    own = Blob(f"{root}/manifests/{digest}", digest, len(content))
    return RegistryImage(own, content, config, tuple(layers), headers)


def _root(name: str) -> str:
    """Return the address of a repository."""
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        scheme = "http" if is_loopback(first) else "https"
        return f"{scheme}://{first}/v2/{rest.split(':')[0]}"
    repository = name.split(":", maxsplit=1)[0]
    official = "" if slash else _OFFICIAL
    return f"https://{HUB_REGISTRY}/v2/{official}{repository}"


def _blob(root: str, entry: Mapping[str, Any]) -> Blob:
    return Blob(f"{root}/blobs/{entry['digest']}", entry["digest"], entry["size"])


def _manifest(
    root: str, digest: str, reference: str, sites: Sites, headers: Mapping[str, str]
) -> bytes:
    page = sites.get(f"{root}/manifests/{digest}", headers)
    if page.status != 200:
        raise MachineError(f"{reference}: the registry answered {page.status}{_said(page)}.")
    found = digest_of(page.body)
    if found != digest:
        raise CheckFailedError(
            f"{reference}: the registry gave a manifest with digest {found} for {digest}. Nothing "
            "was kept."
        )
    return page.body


def _for_this_platform(index: Mapping[str, Any], reference: str) -> str:
    for entry in index["manifests"]:
        platform = entry.get("platform", {})
        if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
            return str(entry["digest"])
    raise CheckFailedError(f"{reference} is no image for linux/amd64.")


def _authorization(url: str, reference: str, sites: Sites) -> dict[str, str]:
    """Return the header with a token, if the registry wants one.

    A login, if any, goes to whom the netrc file names it for: the registry or its token server.
    """
    page = sites.get(url, ACCEPT)
    challenge = read_challenges(page.headers.get("WWW-Authenticate", "")).get("bearer")
    if page.status != 401 or challenge is None:
        return {}
    asked = dict(challenge)
    realm = asked.pop("realm", "")
    answer = sites.get(f"{realm}?{urlencode(asked)}")
    try:
        document = json.loads(answer.body)
        return {"Authorization": f"Bearer {document.get('token') or document['access_token']}"}
    except (ValueError, KeyError, TypeError) as error:
        raise MachineError(
            f"{reference}: the registry wants a login (its token server answered {answer.status}). "
            "Name a netrc file with one (netrc: in imgbuild.local.yaml)."
        ) from error


def _said(page: Answer) -> str:
    try:
        return f": {json.loads(page.body)['errors'][0]['code']}"
    except (ValueError, KeyError, TypeError, IndexError):
        return ""
