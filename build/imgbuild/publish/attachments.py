"""Make an image's SBOM and provenance, and put them beside it: signed, or just attached."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import wheel_key
from imgbuild.engine.client import Engine
from imgbuild.files import parse_json
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.extended_candidate import ExtendedCandidate
from imgbuild.publish.provenance import Publication, extension_provenance, provenance, statement
from imgbuild.publish.sbom import SBOM_MEDIA_TYPE, image_sbom
from imgbuild.registry.repository import Manifest
from imgbuild.registry.repository_client import RegistryClient
from imgbuild.registry.signing import TYPES, Signer

#: Without a signature: the media type of each document, and the end of its tag. `cosign tree` and
#: `oras discover` show them.
_MEDIA_TYPES = {
    "cyclonedx": (SBOM_MEDIA_TYPE, "sbom"),
    "slsaprovenance1": ("application/vnd.in-toto+json", "provenance"),
}


def predicates(
    candidate: PushCandidate, engine: Engine, context: BuildContext, publication: Publication
) -> Mapping[str, bytes]:
    """Return what is attested of an image of the matrix, by cosign's name of the type.

    The image's lock must be held.
    """
    image, project = candidate.image, context.project
    sbom = image_sbom(candidate.name, candidate.stored, engine, project, image.matrix)
    wheel = wheel_key(image, project, context.inputs)
    made = provenance(candidate, project, context.settings, sbom, publication, wheel)
    return _documents(sbom, made)


def extension_predicates(
    candidate: ExtendedCandidate,
    engine: Engine,
    context: BuildContext,
    publication: Publication,
) -> Mapping[str, bytes]:
    """Return the same of an image of `imgbuild extend`; its lock must be held."""
    project, matrix = context.project, context.images[0].matrix
    sbom = image_sbom(candidate.reference, candidate.stored, engine, project, matrix)
    return _documents(sbom, extension_provenance(candidate, project, sbom, publication))


def _documents(sbom: str, made: Mapping[str, Any]) -> Mapping[str, bytes]:
    return {
        "cyclonedx": sbom.encode(),
        "slsaprovenance1": json.dumps(made, indent=1, sort_keys=True).encode(),
    }


@dataclass(frozen=True)
class Attachments:
    """The documents that one push puts beside images. ``signer`` is None if nobody signs."""

    registry: RegistryClient
    signer: Signer | None = None

    @property
    def word(self) -> str:
        return "sign" if self.signer else "attach"

    def are_there(self, digest: str) -> bool:
        """Return whether all documents are beside the image, or a signature if there is a signer.

        Whose signature it is, and of what, is not verified.
        """
        if self.signer is None:
            return all(self.registry.head(tag) for tag in self._tags(digest).values())
        return self.registry.head(f"{digest.replace(':', '-')}.sig") is not None

    def put(self, image: Manifest, predicates: Mapping[str, bytes]) -> None:
        """Attach the predicates, by `TYPES`, to an image that is there. Repeated, it is completed.

        CheckFailedError: cosign or the registry refuses.
        """
        if self.signer:
            self.signer.sign(f"{self.registry.name}@{image.digest}", predicates)
            return
        tags = self._tags(image.digest)
        for kind, document in predicates.items():
            media_type, content = _MEDIA_TYPES[kind][0], document
            if kind != "cyclonedx":  # as cosign makes it of what it signs
                made = statement(self.registry.name, image.digest, parse_json(document))
                content = json.dumps(made, sort_keys=True).encode()
            digest = self.registry.put_artifact(tags[kind], media_type, content, image)
            self.registry.refer(image.digest, digest, media_type)

    def _tags(self, digest: str) -> dict[str, str]:
        stem = digest.replace(":", "-")
        return {kind: f"{stem}.{_MEDIA_TYPES[kind][1]}" for kind in TYPES}
