"""`published --check`: everything in a repository that no push of imgbuild leaves behind."""

from dataclasses import replace
from typing import Any

import pytest

from imgbuild.core.project import Project
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import input_tag, record_tag
from imgbuild.net.repository import OCI_MANIFEST, Manifest
from imgbuild.net.signing import RETIREMENT, Trust
from imgbuild.publish.inspection import inspect_repository
from imgbuild.publish.record import read_published
from support.verification_bench import NAME, OTHER, RETIRED, VerificationBench, before_issue


@pytest.fixture
def bench(project: Project, images: dict[str, Image]) -> VerificationBench:
    return VerificationBench(project, images)


def faults(bench: VerificationBench, key: str = "public own") -> list[str]:
    """Return what is found; without a key, nothing is verified."""
    trust = Trust(bench.cosign, key) if key else None
    found = read_published(bench.registry)
    return [*inspect_repository(bench.registry, found, bench.images[NAME].matrix, trust)]


def sign(bench: VerificationBench, manifest: Manifest) -> None:
    """Sign a manifest without its attestations, as a push could be made to."""
    bench.cosign.signatures.add(("public own", bench.reference(manifest.digest)))
    stem = manifest.digest.replace(":", "-")
    bench.registry.add_manifest(f"{stem}.sig", {"schemaVersion": 2}, OCI_MANIFEST)


def test_published_images_have_no_faults(bench: VerificationBench) -> None:
    record = bench.publish()
    bench.publish(OTHER, change=before_issue)
    bench.registry.tagged["ours-for-ever"] = record.digest
    bench.registry.tagged["push-1-2"] = record.digest
    stem = record.digest.replace(":", "-")
    index = {"schemaVersion": 2, "manifests": []}
    bench.registry.add_manifest(stem, index, "application/vnd.oci.image.index.v1+json")
    bench.registry.tagged["input-cached"] = bench.registry.add_image("cached").digest
    del bench.registry.tagged["cached"]
    assert faults(bench) == faults(bench, "") == []


def test_inspection_without_a_key_asks_no_cosign(bench: VerificationBench) -> None:
    bench.publish()
    bench.cosign.signatures.clear()
    assert faults(bench, "") == []
    assert bench.cosign.calls == []
    assert len(faults(bench)) == 1
    assert len(faults(bench, "public other")) == 1


def test_doubled_keys_are_found_at_any_tag(bench: VerificationBench) -> None:
    """With a signature, the sentence says so: it may be of an earlier push."""
    record = bench.publish()
    manifest = bench.registry.manifests[record.digest]
    document = manifest.document()
    evil = bench.registry.add_manifest(
        "evil", {**document, "Config": document["config"]}, manifest.media_type
    )
    (text,) = faults(bench, "")
    assert "evil" in text
    assert "'config' and 'Config'" in text
    assert "signature" not in text
    sign(bench, evil)
    assert "signature" in faults(bench, "")[0]
    del bench.registry.tagged["evil"]
    assert evil.digest in faults(bench, "")[0]


@pytest.mark.parametrize("key", ["annotations", "subject", "artifactType"])
def test_signature_on_foreign_manifest(bench: VerificationBench, key: str) -> None:
    record = bench.publish()
    manifest = bench.registry.manifests[record.digest]
    value = {"annotations": {"a": "b"}, "subject": manifest.document()["config"]}.get(key, "a/b")
    tag = record.tag.replace("20261120.1", "20261120.2")
    foreign = bench.registry.add_manifest(
        tag, {**manifest.document(), key: value}, manifest.media_type
    )
    assert faults(bench, "") == []
    sign(bench, foreign)
    (text,) = faults(bench, "")
    assert key in text
    assert tag in text


def test_signature_of_what_has_no_tag(bench: VerificationBench) -> None:
    bench.publish()
    foreign = bench.registry.add_image("foreign")
    sign(bench, foreign)
    assert "foreign: no tag of" in faults(bench, "")[0]
    del bench.registry.tagged["foreign"]
    assert foreign.digest in faults(bench, "")[0]
    del bench.registry.manifests[foreign.digest]
    assert faults(bench, "") == [], "a signature of nothing harms nobody"


def test_configuration_with_other_layers_is_found(bench: VerificationBench) -> None:
    bench.publish()
    bench.registry.add_image("2.2.0-cpu-20261120.3", rootfs={"diff_ids": []})
    (text,) = faults(bench, "")
    assert "2.2.0-cpu-20261120.3" in text


def test_moved_tags_are_found_by_provenance(bench: VerificationBench) -> None:
    """The records are rewritten to fit, so only what is signed tells."""
    record, other = bench.publish(), bench.publish(OTHER)
    moved = {
        record.moving[0]: other.digest,
        input_tag(record.input_digest): other.digest,
    }
    bench.registry.tagged |= moved
    bench.put(replace(other, moving=(*other.moving, record.moving[0])))
    found = faults(bench)
    for tag in moved:
        assert any(tag in text and OTHER in text for text in found)
    assert any("moving" in text and other.tag in text for text in found)
    assert len(found) == 3


def test_moved_immutable_tag_is_found(bench: VerificationBench) -> None:
    """With the record of the other image under it, and without."""
    record, other = bench.publish(), bench.publish(OTHER)
    bench.registry.tagged[record.tag] = other.digest
    assert any(record.tag in text for text in faults(bench, ""))
    bench.put(replace(record, digest=other.digest, image_id=other.image_id))
    for tag in (*record.moving, input_tag(record.input_digest)):
        bench.registry.tagged[tag] = other.digest
    for end in (".sig", ".att"):
        del bench.registry.tagged[f"{record.digest.replace(':', '-')}{end}"]
    assert faults(bench, "") == []
    found = faults(bench)
    assert any(record.tag in text and "not a signed tag" in text for text in found)
    assert any(record.tag in text and "record differs" in text for text in found)


@pytest.mark.parametrize(
    ("signed", "recorded"), [(True, False), (False, True), (True, True), (False, False)]
)
def test_retirements_are_compared(
    bench: VerificationBench, *, signed: bool, recorded: bool
) -> None:
    record = bench.publish()
    if signed:
        bench.cosign.attest(bench.reference(record.digest), RETIREMENT, RETIRED)
    if recorded:
        reason = RETIRED["reason"]
        bench.put(replace(record, retired=RETIRED["retired"], retired_reason=reason))
    found = faults(bench)
    assert len(found) == int(signed != recorded)
    assert all(RETIRED["reason"] in text for text in found)


def test_signed_configuration_is_compared(bench: VerificationBench) -> None:
    def change(predicate: dict[str, Any]) -> None:
        internal = predicate["buildDefinition"]["internalParameters"]
        internal["configuration"]["config"]["Env"] = ["A=2"]

    record = bench.publish(change=change)
    (text,) = faults(bench)
    assert record.tag in text
    assert "config.Env" in text


@pytest.mark.parametrize("key", ["public own", ""])
def test_tags_of_unknown_images_are_found(bench: VerificationBench, key: str) -> None:
    """A moving tag whose record was deleted, and the tag by which a build pulls an image."""
    record, other = bench.publish(), bench.publish(OTHER)
    del bench.registry.tagged[record_tag(record.tag)]
    evil = bench.registry.add_image("evil")
    moved = (record.moving[0], input_tag(other.input_digest))
    bench.registry.tagged |= dict.fromkeys(moved, evil.digest)
    found = faults(bench, key)
    for tag in moved:
        assert any(tag in text and evil.digest in text for text in found)


def test_moving_tag_without_a_record_is_compared(bench: VerificationBench) -> None:
    """It is at a signed image, but at another one."""
    record, other = bench.publish(), bench.publish(OTHER)
    del bench.registry.tagged[record_tag(record.tag)]
    for tag in record.moving:
        bench.registry.tagged[tag] = other.digest
    found = faults(bench)
    for tag in record.moving:
        assert any(f" {tag}: " in text and OTHER in text for text in found)
