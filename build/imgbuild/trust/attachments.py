"""Put an image's SBOM and provenance beside it in its repository: signed, or just attached."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from imgbuild.errors import CheckFailedError
from imgbuild.files import parse_json
from imgbuild.registry.repository import Manifest
from imgbuild.registry.repository_client import RegistryClient
from imgbuild.registry.signing import TYPES, Signer
from imgbuild.trust.provenance import statement

#: Without a signature: the media type of each document, and the end of its tag. `cosign tree` and
#: `oras discover` show them.
_MEDIA_TYPES = {
    "cyclonedx": ("application/vnd.cyclonedx+json", "sbom"),
    "slsaprovenance1": ("application/vnd.in-toto+json", "provenance"),
}


@dataclass(frozen=True)
class Attachments:
    """What one push puts beside images; ``signer`` is None where nobody signs."""

    registry: RegistryClient
    signer: Signer | None = None

    @property
    def word(self) -> str:
        return "sign" if self.signer else "attach"

    def are_there(self, digest: str) -> bool:
        """Return whether all documents are beside the image, signed by this signer if any."""
        if self.signer is None:
            return all(self.registry.head(tag) for tag in self._tags(digest).values())
        if self.registry.head(f"{digest.replace(':', '-')}.sig") is None:
            return False
        if self.signer.key is None:
            return True  # whoever it was, it was with a key that is gone
        try:
            self.signer.trust.require_signature(f"{self.registry.name}@{digest}")
        except CheckFailedError:
            return False
        return True

    def put(self, image: Manifest, predicates: Mapping[str, bytes]) -> None:
        """Attach the predicates, by `TYPES`, to an image that is there. Repeated, it is completed.

        CheckFailedError: cosign or the registry refuses.
        """
        if self.signer:
            self.signer.sign(f"{self.registry.name}@{image.digest}", predicates)
            return
        tags = self._tags(image.digest)
        for kind, content in predicates.items():
            media_type = _MEDIA_TYPES[kind][0]
            document = content if kind == "cyclonedx" else self._statement(content, image)
            digest = self.registry.put_artifact(tags[kind], media_type, document, image)
            self.registry.refer(image.digest, digest, media_type)

    def _statement(self, predicate: bytes, image: Manifest) -> bytes:
        """Return the statement of a predicate, as cosign makes it of what it signs."""
        made = statement(self.registry.name, image.digest, parse_json(predicate))
        return json.dumps(made, sort_keys=True).encode()

    def _tags(self, digest: str) -> dict[str, str]:
        stem = digest.replace(":", "-")
        return {kind: f"{stem}.{_MEDIA_TYPES[kind][1]}" for kind in TYPES}
