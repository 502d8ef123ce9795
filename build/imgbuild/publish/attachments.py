"""Create an image's SBOM and provenance, and sign them or attach them to the image."""

import json
from collections.abc import Mapping
from typing import Any

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import wheel_key
from imgbuild.core.files import parse_json
from imgbuild.engine.client import Engine
from imgbuild.net.repository import Manifest
from imgbuild.net.repository_client import RegistryClient
from imgbuild.net.signing import TYPES, Signer
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.extended_candidate import ExtendedCandidate
from imgbuild.publish.provenance import make_extension_provenance, make_provenance, make_statement
from imgbuild.publish.record import Record
from imgbuild.publish.sbom import SBOM_MEDIA_TYPE, make_sbom

#: The media type and the tag suffix of each unsigned document. `cosign tree` and `oras discover`
#: show these documents.
_MEDIA_TYPES = {
    "cyclonedx": (SBOM_MEDIA_TYPE, "sbom"),
    "slsaprovenance1": ("application/vnd.in-toto+json", "provenance"),
}


def make_predicates(
    candidate: PushCandidate | ExtendedCandidate,
    record: Record,
    configuration: Mapping[str, Any],
    engine: Engine,
    context: BuildContext,
) -> dict[str, bytes]:
    """Return the predicates to attest for an image, by cosign's name of their type.

    ``configuration`` is the result of `read_configuration`. The image's lock must be held.
    """
    project = context.project
    if isinstance(candidate, ExtendedCandidate):
        matrix = context.images[0].matrix
        sbom = make_sbom(candidate.reference, candidate.stored, engine, project, matrix)
        predicate = make_extension_provenance(candidate, record, configuration, project, sbom)
    else:
        image = candidate.image
        sbom = make_sbom(candidate.name, candidate.stored, engine, project, image.matrix)
        wheel = wheel_key(image, project, context.inputs)
        settings = context.settings
        predicate = make_provenance(
            candidate, record, configuration, project, settings, sbom=sbom, wheel=wheel
        )
    provenance = json.dumps(predicate, indent=1, sort_keys=True)
    return {"cyclonedx": sbom.encode(), "slsaprovenance1": provenance.encode()}


def is_attached(registry: RegistryClient, digest: str, signer: Signer | None) -> bool:
    """Return whether an image has all its documents, or with a signer, a signature.

    The signature itself is not verified.
    """
    if signer is None:
        return all(registry.head(tag) for tag in _document_tags(digest).values())
    return registry.head(f"{digest.replace(':', '-')}.sig") is not None


def attach(
    registry: RegistryClient,
    image: Manifest,
    predicates: Mapping[str, bytes],
    signer: Signer | None,
) -> None:
    """Attach the predicates to an image in the registry.

    ``predicates`` has the keys of `TYPES`. Calling it again completes an interrupted call.

    CheckFailedError: cosign or the registry reports an error.
    """
    if signer:
        signer.sign(f"{registry.name}@{image.digest}", predicates)
        return
    tags = _document_tags(image.digest)
    for kind, document in predicates.items():
        media_type, _ = _MEDIA_TYPES[kind]
        content = document
        if kind != "cyclonedx":  # wrap it in a statement, as cosign does when it signs
            signed = make_statement(registry.name, image.digest, parse_json(document))
            content = json.dumps(signed, sort_keys=True).encode()
        digest = registry.put_artifact(tags[kind], media_type, content, image)
        registry.refer(image.digest, digest, media_type)


def _document_tags(digest: str) -> dict[str, str]:
    """Return the tags of an image's documents, by cosign's name of their type."""
    stem = digest.replace(":", "-")
    return {kind: f"{stem}.{_MEDIA_TYPES[kind][1]}" for kind in TYPES}
