"""The name of a repository of a registry, and the manifests and artifacts in it.

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

#: Docker Hub's registry has another host than its images' names. Source: the engine's registry
#: package.
HUB, HUB_REGISTRY = "docker.io", "registry-1.docker.io"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
#: Manifests that list those of several platforms.
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
#: The keys of a manifest, of an index and of what refers to content. Sources: OCI image
#: specification 1.1, "manifest.md", "image-index.md", "descriptor.md"; Docker's have no others.
_COMMON_KEYS = {"schemaVersion", "mediaType", "artifactType", "subject", "annotations"}
_MANIFEST_KEYS = _COMMON_KEYS | {"config", "layers"}
_INDEX_KEYS = _COMMON_KEYS | {"manifests"}
_DESCRIPTOR_KEYS = {
    *("mediaType", "digest", "size", "urls", "annotations", "data", "artifactType", "platform")
}
#: The configuration of an artifact.
EMPTY_TYPE, EMPTY = "application/vnd.oci.empty.v1+json", b"{}"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: No blob has so many bytes. A manifest that says more is damaged, or meant to do harm.
LARGEST_BLOB = 1 << 50


class DamagedError(CheckFailedError):
    """The content of a registry is damaged, or of another kind than expected."""


@dataclass(frozen=True)
class RepositoryName:
    """A repository; ``host`` includes its port, if it has one."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def registry(self) -> str:
        """The host, with its port, that requests go to."""
        return HUB_REGISTRY if self.host == HUB else self.host


@dataclass(frozen=True)
class Manifest:
    """A manifest as its registry holds it; ``content`` are the very bytes of ``digest``."""

    digest: str
    media_type: str
    content: bytes

    def document(self) -> Mapping[str, Any]:
        """Return the parsed content of a manifest or an index.

        DamagedError: it is neither, or programs could read it in different ways: two keys differ
        only in case, it has a key that neither has, or another type than the registry says.
        """
        what = f"The manifest {self.digest}"
        document = json_object(self.content, what)
        kind = document.get("mediaType")
        if kind and self.media_type and kind != self.media_type:
            raise DamagedError(f"{what} is of the type {kind}, but sent as {self.media_type}.")
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
        """The digest of the configuration, or nothing if it has none."""
        return self._digest_of("config")

    @property
    def subject(self) -> str:
        """The digest of the image that it is about, or nothing if it is of none."""
        return self._digest_of("subject")

    def _digest_of(self, key: str) -> str:
        part = self.document().get(key)
        if not isinstance(part, Mapping):
            return ""
        digest = str(part.get("digest", ""))
        if not DIGEST.fullmatch(digest):
            raise DamagedError(f"The manifest {self.digest}: its {key} has no sha256.")
        return digest

    def sizes(self) -> tuple[int, ...]:
        """Return the bytes of the configuration and of each layer, as the registry holds them.

        DamagedError: it does not say them, or lists several platforms.
        """
        document = self.document()
        config, layers = document.get("config"), document.get("layers")
        if config is None or not isinstance(layers, list):
            raise DamagedError(f"{self.digest} lists several platforms, not one image: build it.")
        sizes = []
        for part in (config, *layers):
            size = part.get("size") if isinstance(part, Mapping) else None
            if type(size) is not int or not 0 <= size < LARGEST_BLOB:
                raise DamagedError(f"{self.digest} refers to something without a size that can be.")
            sizes.append(size)
        return tuple(sizes)

    def is_image(self, image_id: str) -> bool:
        """Return whether an engine gives its image this id, by what the manifest says.

        This is no proof, because the layers can differ. Sign only images that the engine pushed.

        The id is the digest of the configuration in a graph driver, that of the manifest in the
        containerd store.
        """
        return image_id in {self.digest, self.config_digest}


_REPOSITORY = TypeAdapter(PublishingRepository)


def parse_repository(text: str, option: str) -> RepositoryName:
    """Return the repository that ``text`` names; if it names none, InputError with ``option``."""
    if "@" in text:  # never quoted: it may hold a login
        raise InputError(
            f"{option}: a repository is HOST[:PORT]/REPOSITORY, without login and digest. Logins "
            "are the Docker client's: docker login HOST."
        )
    try:
        _REPOSITORY.validate_python(text)
    except ValidationError as error:
        raise InputError(f"{option}: {refusal_reason(error)}.") from None
    host, _, path = text.partition("/")
    return RepositoryName(host, path)


def split_reference(reference: str) -> tuple[str, str, str]:
    """Return the repository, the tag and the digest that name an image; the last two may be empty.

    A colon before the last slash is that of a port. Source: distribution's package reference.
    """
    name, _, digest = reference.partition("@")
    path, colon, tag = name.rpartition(":")
    return (path, tag, digest) if colon and "/" not in tag else (name, "", digest)


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content)}"


def descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    """Return the entry of a manifest that refers to content."""
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def json_object(content: bytes, what: str) -> Mapping[str, Any]:
    """Return a JSON object from a registry; DamagedError if the content is none."""
    try:
        document = parse_strict_json(content)
    except ValueError as error:
        raise DamagedError(f"{what} is not JSON that can be trusted: {error}.") from None
    if not isinstance(document, dict):
        raise DamagedError(f"{what} is not a JSON object.")
    return document


def _check_keys(document: Mapping[str, Any], known: Container[str], what: str) -> None:
    """Raise DamagedError for a key that is not known: another program may know it."""
    for key in document:
        if key not in known:
            raise DamagedError(f"{what} has the key {key[:80]!r}, which no manifest has.")
