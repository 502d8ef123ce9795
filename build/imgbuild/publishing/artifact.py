"""A JSON document beside the images of a repository, as an OCI artifact."""

import json
from collections.abc import Mapping
from typing import Any

from imgbuild.registry.client import RegistryClient
from imgbuild.registry.manifest import Artifact, DamagedError, Manifest

__all__ = ["Artifact", "DamagedError", "get_artifact", "put_artifact"]


def put_artifact(
    registry: RegistryClient,
    tag: str,
    artifact_type: str,
    document: Mapping[str, Any],
    subject: Manifest | None = None,
) -> str:
    """Put a document under a tag, which moves if it is there; return the digest."""
    content = json.dumps(document, sort_keys=True, ensure_ascii=False).encode()
    return registry.put_artifact(tag, artifact_type, content, subject)


def get_artifact(registry: RegistryClient, tag: str, artifact_type: str) -> Artifact | None:
    """Return the document under a tag, or ``None`` if there is no such tag."""
    return registry.read_artifact(tag, artifact_type)
