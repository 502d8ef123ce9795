"""Signed pushes to a registry in memory."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from imgbuild.core.errors import CheckFailedError
from imgbuild.net.repository import DOCKER_MANIFEST, Manifest
from imgbuild.publish.image_push import Push
from imgbuild.publish.provenance import BUILD_TYPE
from imgbuild.publish.record import Record
from support.memory_registry import MemoryRegistry
from support.published_images import external_parameters
from support.push_bench import FIRST, PushBench


@dataclass
class FakeSigner:
    """A signer and who trusts it; ``signed`` are the predicates by digest.

    Of the digests in ``forged`` the signature is somebody else's, the attestations are not.
    """

    registry: MemoryRegistry
    key: str | None = "cosign.key"
    signed: dict[str, dict[str, bytes]] = field(default_factory=dict)
    forged: set[str] = field(default_factory=set)

    @property
    def trust(self) -> "FakeSigner":
        return self

    def sign(self, reference: str, predicates: Mapping[str, bytes]) -> None:
        digest = reference.rpartition("@")[2]
        self.signed[digest] = dict(predicates)
        self.forged.discard(digest)
        self.registry.put_artifact(f"{digest.replace(':', '-')}.sig", "signature", b"{}")

    def require_signature(self, reference: str) -> None:
        digest = reference.rpartition("@")[2]
        if digest not in self.signed or digest in self.forged:
            raise CheckFailedError(f"{reference}: it has no signature.")

    def read_attestations(self, reference: str, kind: str) -> tuple[Mapping[str, Any], ...]:
        digest = reference.rpartition("@")[2]
        if digest not in self.signed:
            raise CheckFailedError(f"{reference}: nobody attested it.")
        return (json.loads(self.signed[digest][kind]),)

    def read_attestations_if_any(self, reference: str, kind: str) -> tuple[Mapping[str, Any], ...]:
        documents = self.signed.get(reference.rpartition("@")[2], {})
        return (json.loads(documents[kind]),) if kind in documents else ()


def provenance(record: Record, _: Manifest) -> dict[str, bytes]:
    """Return the documents of an image, with the parts of the provenance that a push reads."""
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": external_parameters(record),
            "internalParameters": {"inputDigest": record.input_digest, "configuration": {}},
        }
    }
    return {"cyclonedx": b"{}", "slsaprovenance1": json.dumps(predicate).encode()}


@dataclass
class SignedBench(PushBench):
    """A bench whose pushes are signed."""

    key: str | None = "cosign.key"

    def __post_init__(self) -> None:
        self.signer = FakeSigner(self.registry, self.key)

    def session(self, *arguments: Any) -> Push:
        signer: Any = self.signer
        trust = signer if self.key else None
        return replace(super().session(*arguments), signer=signer, trust=trust)

    def push_signed(self, content: str = "one", release: str | None = None) -> Any:
        session = self.session(release)
        self.registry.calls.clear()
        candidate = self.candidate(content)
        return session.push(candidate, lambda tag: self.upload(content, tag), provenance)

    def put_manifest(self, **changes: object) -> str:
        """Put a manifest under the immutable tag that names our image; return its digest."""
        true = self.registry.add_image("one")
        del self.registry.tagged["one"]
        document = {**true.document(), **changes}
        return self.registry.add_manifest(FIRST, document, DOCKER_MANIFEST).digest
