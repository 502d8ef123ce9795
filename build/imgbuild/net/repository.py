"""Names of repositories in registries, and the manifests and artifacts in them.

Sources: OCI image specification 1.1, with "Guidelines for Artifact Usage"; Docker's schema 2.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.files import parse_strict_json, sha256
from imgbuild.core.scalars import PublishingRepository, refusal_reason

#: Docker Hub's host in the names of images, and the host of its registry. Source: the engine's
#: package "registry".
HUB, HUB_REGISTRY = "docker.io", "registry-1.docker.io"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
#: Types of indexes: manifests that list the manifests of several platforms.
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
#: The keys of manifests, indexes and descriptors. Docker's formats have no others. Sources: OCI
#: image specification 1.1, "manifest.md", "image-index.md", "descriptor.md".
_COMMON_KEYS = {"schemaVersion", "mediaType", "artifactType", "subject", "annotations"}
_MANIFEST_KEYS = _COMMON_KEYS | {"config", "layers"}
_INDEX_KEYS = _COMMON_KEYS | {"manifests"}
_DESCRIPTOR_KEYS = {
    *("mediaType", "digest", "size", "urls", "annotations", "data", "artifactType", "platform")
}
#: The type and the content of an artifact's configuration.
EMPTY_TYPE, EMPTY = "application/vnd.oci.empty.v1+json", b"{}"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: More bytes than any blob has. A manifest with a larger size is damaged or malicious.
LARGEST_BLOB = 1 << 50


class DamagedError(CheckFailedError):
    """The registry's content is damaged or has an unexpected type."""


@dataclass(frozen=True)
class RepositoryName:
    """A repository in a registry; ``host`` includes the port, if there is one."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def registry(self) -> str:
        """The host, with its port, that receives the requests."""
        return HUB_REGISTRY if self.host == HUB else self.host


@dataclass(frozen=True)
class Manifest:
    """A manifest as its registry stores it; ``digest`` is the digest of ``content``."""

    digest: str
    media_type: str
    content: bytes

    def document(self) -> Mapping[str, Any]:
        """Return the parsed content of a manifest or an index.

        DamagedError: the content is neither, or programs could read it in different ways, because
            two keys differ only in case, a key is not known, or its type is not the type that the
            registry sent.
        """
        what = f"The manifest {self.digest}"
        document = json_object(self.content, what)
        kind = document.get("mediaType")
        if kind and self.media_type and kind != self.media_type:
            raise DamagedError(f"{what} has type {kind}, but was sent as {self.media_type}.")
        _check_keys(document, _INDEX_KEYS if "manifests" in document else _MANIFEST_KEYS, what)
        descriptors = [document.get("config"), document.get("subject")]
        for key in ("layers", "manifests"):
            listed = document.get(key, [])
            if not isinstance(listed, list):
                raise DamagedError(f"{what}: {key} is not a list.")
            descriptors += listed
        for descriptor in descriptors:
            if isinstance(descriptor, Mapping):
                _check_keys(descriptor, _DESCRIPTOR_KEYS, what)
        return document

    @property
    def config_digest(self) -> str:
        """The digest of the configuration; empty if there is none."""
        return self._digest_of("config")

    @property
    def subject(self) -> str:
        """The digest of the image that the manifest refers to; empty if there is none."""
        return self._digest_of("subject")

    def _digest_of(self, key: str) -> str:
        part = self.document().get(key)
        if not isinstance(part, Mapping):
            return ""
        digest = str(part.get("digest", ""))
        if not DIGEST.fullmatch(digest):
            raise DamagedError(f"The manifest {self.digest}: its {key} has no valid sha256.")
        return digest

    def sizes(self) -> tuple[int, ...]:
        """Return the size of the configuration and of each layer in the registry, in bytes.

        DamagedError: a size is missing or impossible, or the manifest lists several platforms.
        """
        document = self.document()
        config, layers = document.get("config"), document.get("layers")
        if config is None or not isinstance(layers, list):
            raise DamagedError(f"{self.digest} lists several platforms, not one image. Build it.")
        sizes = []
        for part in (config, *layers):
            size = part.get("size") if isinstance(part, Mapping) else None
            if type(size) is not int or not 0 <= size < LARGEST_BLOB:
                raise DamagedError(f"{self.digest} refers to content that has no valid size.")
            sizes.append(size)
        return tuple(sizes)

    def is_image(self, image_id: str) -> bool:
        """Return whether the manifest describes the image that has this id in an engine.

        The id is the digest of the configuration in a graph driver, and of the manifest in a
        containerd store. A match proves nothing, because the layers can differ: sign only images
        that the engine pushed.
        """
        return image_id in {self.digest, self.config_digest}


_REPOSITORY = TypeAdapter(PublishingRepository)


def parse_repository(text: str, option: str) -> RepositoryName:
    """Return the repository that ``text`` names.

    InputError: it names none. The message begins with ``option``.
    """
    if "@" in text:  # not quoted in the message, because it may contain a login
        raise InputError(
            f"{option}: give HOST[:PORT]/REPOSITORY, without a login or a digest. imgbuild uses "
            "the logins of the Docker client: docker login HOST."
        )
    try:
        _REPOSITORY.validate_python(text)
    except ValidationError as error:
        raise InputError(f"{option}: {refusal_reason(error)}.") from None
    host, _, path = text.partition("/")
    return RepositoryName(host, path)


def split_reference(reference: str) -> tuple[str, str, str]:
    """Return the repository, tag and digest of an image's name; tag and digest may be empty.

    A colon before the last slash belongs to a port. Source: distribution's package "reference".
    """
    name, _, digest = reference.partition("@")
    path, colon, tag = name.rpartition(":")
    return (path, tag, digest) if colon and "/" not in tag else (name, "", digest)


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content)}"


def descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    """Return the descriptor by which a manifest refers to content."""
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def json_object(content: bytes, what: str) -> Mapping[str, Any]:
    """Return a JSON object from a registry.

    DamagedError: the content is not a JSON object, or programs could read it in different ways.
    """
    try:
        document = parse_strict_json(content)
    except ValueError as error:
        raise DamagedError(f"{what} is not valid, unambiguous JSON: {error}.") from None
    if not isinstance(document, dict):
        raise DamagedError(f"{what} is not a JSON object.")
    return document


def _check_keys(document: Mapping[str, Any], known: Container[str], what: str) -> None:
    """Raise DamagedError for an unknown key, because another program may give it a meaning."""
    for key in document:
        if key not in known:
            raise DamagedError(f"{what} has the unknown key {key[:80]!r}.")
