"""A small JSON document beside the images of a repository, as an OCI artifact.

Source of the shape: OCI image specification 1.1, "Guidelines for Artifact Usage".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.registry.media_types import EMPTY, OCI_MANIFEST
from imgbuild.registry.protocol import LARGEST_BLOB, Manifest, Registry

_EMPTY = b"{}"


@dataclass(frozen=True)
class Artifact:
    """A document as it was read; ``subject`` is the digest of what it is about, if it says so."""

    document: Mapping[str, Any]
    digest: str
    subject: str | None


class DamagedError(CheckFailedError):
    """What is under a tag is not the document that belongs there."""


def put_artifact(
    registry: Registry,
    tag: str,
    artifact_type: str,
    document: Mapping[str, Any],
    subject: Manifest | None = None,
) -> str:
    """Put a document under a tag, which moves if it is there; return the digest.

    The same document has the same digest whoever writes it. It is read again: a registry whose
    disk is full may say that it wrote what it then does not have.

    Raises:
        CheckFailedError: it is larger than what is read; nothing is written.
        MachineError: it is not there afterwards.

    """
    content = _readable(tag, document)
    layer = _descriptor(artifact_type, registry.put_blob(content), len(content))
    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": artifact_type,
        "config": _descriptor(EMPTY, registry.put_blob(_EMPTY), len(_EMPTY)),
        "layers": [layer],
    }
    if subject:
        manifest["subject"] = _descriptor(subject.media_type, subject.digest, len(subject.content))
    digest = registry.put_manifest(tag, json.dumps(manifest).encode(), OCI_MANIFEST)
    if registry.manifest(tag) is None:  # its digest is checked as it is read
        raise MachineError(
            f"{registry.name}:{tag} was written and is not there. See that the registry is well "
            "(its log, its disk), then run this again."
        )
    return digest


def get_artifact(registry: Registry, tag: str, artifact_type: str) -> Artifact | None:
    """Return the document under a tag, or ``None`` if there is no such tag.

    Raises:
        DamagedError: what is there is something else.

    """
    manifest = registry.manifest(tag)
    if manifest is None:
        return None
    where = f"{registry.name}:{tag}"
    try:
        found = manifest.document()
        kind, (layer,) = found.get("artifactType"), found["layers"]
        digest, subject = str(layer["digest"]), found.get("subject")
        about = str(subject["digest"]) if subject else None
    except (CheckFailedError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{where} is no document of imgbuild.") from error
    if kind != artifact_type:
        raise DamagedError(f"{where} is of the kind {kind}, not {artifact_type}.")
    return Artifact(_document(registry.blob(digest), where), manifest.digest, about)


def _readable(tag: str, document: Mapping[str, Any]) -> bytes:
    content = json.dumps(document, sort_keys=True, ensure_ascii=False).encode()
    if len(content) > LARGEST_BLOB:
        raise CheckFailedError(
            f"{tag} would be {len(content) >> 20} MiB, and imgbuild reads {LARGEST_BLOB >> 20} MiB "
            "at most: it is not written. Publish into another repository, or take old images away "
            "with the registry's own means, their tags and their .record tags."
        )
    return content


def _document(content: bytes, where: str) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise DamagedError(f"{where} holds no JSON object.")
    return document


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}
