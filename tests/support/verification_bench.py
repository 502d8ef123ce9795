"""A repository with signed images of the family, and who trusts the key that signed them."""

import json
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.dockerfile.labels import NAME as NAME_LABEL
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image, planned_tags, with_other_architectures
from imgbuild.matrix.tags import index_tag, input_tag
from imgbuild.net.repository import OCI_MANIFEST, Manifest, digest_of
from imgbuild.net.signing import Trust
from imgbuild.publish import verification
from imgbuild.publish.provenance import BUILD_TYPE, read_configuration
from imgbuild.publish.record import Record, put_record
from imgbuild.publish.release_index import INDEX_TYPE, index_content
from imgbuild.publish.verification import VerifiedFact, verify_image
from imgbuild.suites.results import suite_result
from support.fake_cosign import FakeCosign
from support.fake_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.published_images import RECORD, external_parameters
from support.suite_results import stored

NAME, OTHER = "tf-2.2-cpu-debian", "tf-2.1-cpu-debian"
FIRST, SECOND = "20261120.1", "20261121.1"
SBOM = {
    "metadata": {"component": {"properties": [{"name": "imgbuild:layer", "value": "one"}]}},
    "components": [{"purl": "pkg:pypi/numpy@1.18.5"}],
}
REPORT = {"pins": stored(suite_result("pins", passed=3), "key")}
CHECKS = [
    *("signature", "SBOM", "provenance", "tag", "record"),
    *("configuration", "retirement", "contents"),
]
RETIRED = {"retired": "2026-11-27", "reason": "a hole"}
Change = Callable[[dict[str, Any]], object]
VerifiedImage = tuple[str, list[VerifiedFact]]


class RunningEngine(FakeEngine):
    """An engine that has what it pulls, with the configuration of ``configurations``."""

    def __init__(self) -> None:
        super().__init__()
        self.configurations: dict[str, Mapping[str, Any]] = {}

    def inspect(self, reference: str) -> StoredImage | None:
        every = self.stored.values()
        return next((image for image in every if reference in image.digests), None)

    def configuration(self, image_id: str) -> Mapping[str, Any]:
        return self.configurations[image_id]


@dataclass
class VerificationBench:
    """A repository with signed images of the family, and who trusts the key that signed them."""

    project: Project
    images: Mapping[str, Image]
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    cosign: FakeCosign = field(default_factory=FakeCosign)
    engine: RunningEngine = field(default_factory=RunningEngine)
    said: list[str] = field(default_factory=list)

    def reference(self, digest: str) -> str:
        return f"{self.registry.name}@{digest}"

    def publish(
        self, name: str = NAME, release: str = FIRST, change: Change = lambda _: None, **config: Any
    ) -> Record:
        """Publish and sign an image as a push does; ``change`` is made to its provenance."""
        image = self.images[name]
        input_digest = digest_of(f"{name} {release}".encode())
        labels = {NAME_LABEL: name, INPUT_DIGEST: input_digest}
        config = {"Env": ["A=1"], "User": "", "Labels": labels, **config}
        tags = planned_tags(image, release)
        manifest = self.registry.add_image(tags.immutable, config=config)
        record = replace(
            RECORD,
            image=name,
            digest=manifest.digest,
            image_id=manifest.config_digest,
            release=release,
            tag=tags.immutable,
            moving=tags.moving,
            input_digest=input_digest,
            pins={pin.component: pin.version for pin in image.pins},
            report=REPORT,
            platform=image.platform,
            published=f"{release[:4]}-{release[4:6]}-{release[6:8]}T10:00:00Z",
        )
        put_record(self.registry, record, manifest)
        for tag in (*tags.moving, input_tag(input_digest)):
            self.registry.tagged[tag] = manifest.digest
        reference = self.reference(manifest.digest)
        self.cosign.signatures.add(("public own", reference))
        self.cosign.attest(reference, "cyclonedx", SBOM)
        self.attest(record, change)
        stem = manifest.digest.replace(":", "-")
        for end in (".sig", ".att"):
            self.registry.add_manifest(f"{stem}{end}", {"schemaVersion": 2}, OCI_MANIFEST)
        self.offer(manifest, config)
        return record

    def publish_index(self, name: str, release: str = FIRST) -> tuple[Record, Record, str]:
        """Publish an image for both platforms with their signed index; return its digest, too."""
        records = [self.publish(name, release), self.publish(f"{name}-arm64", release)]
        manifests = {one.platform: self.registry.manifests[one.digest] for one in records}
        document = json.loads(index_content(manifests))
        first, second = records
        index = self.registry.add_manifest(index_tag(first.tag), document, INDEX_TYPE)
        for tag in first.moving:
            self.registry.tagged[tag] = index.digest
        self.cosign.signatures.add(("public own", self.reference(index.digest)))
        return first, second, index.digest

    def attest(self, record: Record, change: Change = lambda _: None) -> None:
        """Attest the provenance of an image, as a push into a release does."""
        manifest = self.registry.manifests[record.digest]
        predicate: dict[str, Any] = {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": external_parameters(record),
                "internalParameters": {
                    "inputDigest": record.input_digest,
                    "configuration": read_configuration(self.registry, manifest),
                },
            },
            "runDetails": {
                "byproducts": [{"name": "suite pins", "annotations": REPORT["pins"].as_json()}],
            },
        }
        change(predicate)
        self.cosign.attest(self.reference(record.digest), "slsaprovenance1", predicate)

    def offer(self, manifest: Manifest, config: Mapping[str, Any]) -> None:
        """Let the engine pull an image."""
        reference, layers = self.reference(manifest.digest), (digest_of(b"layer"),)
        stored = StoredImage(manifest.config_digest, layers=layers, digests=(reference,))
        self.engine.registry[reference] = stored
        self.engine.configurations[stored.id] = config

    def put(self, record: Record) -> None:
        put_record(self.registry, record, self.registry.manifests[record.digest])

    def verify(self, tag: str = "", digest: str = "", key: str = "public own") -> VerifiedImage:
        name = self.registry.name + (tag and f":{tag}") + (digest and f"@{digest}")
        trust = Trust(self.cosign, key)
        verified = verify_image(name, trust, self.project, self.said.append)
        assert all("@sha256:" in reference for _, reference in self.cosign.calls)
        return verified

    def problems(self, tag: str = "", digest: str = "", key: str = "public own") -> dict[str, str]:
        """Return what does not hold, by the name of the check."""
        _, facts = self.verify(tag, digest, key)
        return {fact.name: fact.problem for fact in facts if fact.problem}

    @property
    def notes(self) -> list[str]:
        return [text for text in self.said if text.startswith("note: ")]


def verification_bench(
    project: Project, images: Mapping[str, Image], monkeypatch: pytest.MonkeyPatch
) -> VerificationBench:
    """Return a repository for all platforms, which `verify` reads instead of a real one."""
    family = {image.name: image for image in with_other_architectures(images.values())}
    made = VerificationBench(project, family)

    @contextmanager
    def opened(_: object) -> Any:
        yield made.engine

    monkeypatch.setattr(verification, "connect", lambda *_: made.registry)
    monkeypatch.setattr(verification, "open_engine", opened)
    monkeypatch.setattr(verification, "load_matrix", lambda _: family[NAME].matrix)
    monkeypatch.setattr(verification, "make_locked_sbom", lambda *_: '{"metadata": 1}')
    monkeypatch.setattr(verification, "_compare_sbom", lambda *_: None)
    return made


def before_issue(predicate: dict[str, Any]) -> None:
    """Make a provenance what it was before releases, tags and configurations were signed."""
    definition = predicate["buildDefinition"]
    del definition["externalParameters"]["release"], definition["externalParameters"]["tags"]
    del definition["internalParameters"]["configuration"]
