"""What `verify` believes: a trusted signature, never a record or what else a writer can change."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.dockerfile.labels import NAME as NAME_LABEL
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image, planned_tags
from imgbuild.matrix.tags import input_tag
from imgbuild.net.repository import OCI_MANIFEST, digest_of
from imgbuild.net.signing import RETIREMENT, TYPES
from imgbuild.publish import verification as module
from imgbuild.publish.signed_image import read_provenances, record_differences
from imgbuild.suites.results import Check, suite_result
from support.published_images import RECORD
from support.verification_bench import (
    CHECKS,
    FIRST,
    NAME,
    OTHER,
    RETIRED,
    SECOND,
    Change,
    RunningEngine,
    VerificationBench,
    before_issue,
    verification_bench,
)


@pytest.fixture
def bench(
    project: Project, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> VerificationBench:
    return verification_bench(project, images, monkeypatch)


def test_verify_accepts_what_a_push_signed(bench: VerificationBench) -> None:
    record = bench.publish()
    for tag in (record.tag, *record.moving, input_tag(record.input_digest)):
        reference, facts = bench.verify(tag)
        assert [fact.name for fact in facts] == CHECKS
        assert {fact.problem for fact in facts} == {""}
        assert reference == bench.reference(record.digest)
    assert bench.problems(digest=record.digest) == {}
    assert bench.problems(record.tag, record.digest) == {}
    assert bench.notes == []
    assert not bench.engine.stored, "what was pulled is removed"
    with pytest.raises(InputError):
        bench.verify("nosuch")


def test_verify_asks_cosign_by_digest_only(bench: VerificationBench) -> None:
    record = bench.publish()
    bench.verify(record.moving[0])
    assert {reference for _, reference in bench.cosign.calls} == {bench.reference(record.digest)}


def test_verify_refuses_unsigned_and_foreign_keys(bench: VerificationBench) -> None:
    record = bench.publish()
    found = bench.problems(record.tag, key="public other")
    assert {"signature", "SBOM", "provenance", "tag", "record"} <= found.keys()
    bench.cosign.signatures.clear()
    assert [*bench.problems(record.tag)] == ["signature"]


@pytest.mark.parametrize("kind", ["cyclonedx", "slsaprovenance1"])
def test_verify_refuses_attestation_of_other_digest(bench: VerificationBench, kind: str) -> None:
    """Also if only the last of its 64 digits is another, and if it is of no digest at all."""
    record = bench.publish()
    name = {"cyclonedx": "SBOM", "slsaprovenance1": "provenance"}[kind]
    digest = record.digest.removeprefix("sha256:")
    almost = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    uri = {"cyclonedx": "https://cyclonedx.org/bom"}.get(kind, "https://slsa.dev/provenance/v1")
    for subject in ([{"digest": {"sha256": almost}}], []):
        for _, _, statement in bench.cosign.statements:
            if statement["predicateType"] == uri:
                statement["subject"] = subject
        assert name in bench.problems(record.tag)


def test_record_with_foreign_tag_is_refused(bench: VerificationBench) -> None:
    """Who may write moves a tag to another signed image, and writes it into that one's record."""
    own, other = bench.publish(), bench.publish(OTHER)
    tag = own.moving[0]
    bench.registry.tagged[tag] = other.digest
    assert "tag" in bench.problems(tag)
    bench.put(replace(other, moving=(*other.moving, tag)))
    found = bench.problems(tag)
    assert tag in found["tag"]
    found = bench.problems(other.tag)
    assert "moving" in found["record"]
    assert [*found] == ["record"]


@pytest.mark.parametrize(
    ("field_name", "value"),
    [
        ("image", OTHER),
        ("variant", "gpu"),
        ("pins", {"tensorflow": "2.2.0"}),
        ("input_digest", RECORD.input_digest),
        ("release", "20261120.2"),
    ],
)
@pytest.mark.parametrize("change", [lambda _: None, before_issue])
def test_rewritten_record_is_named(
    bench: VerificationBench, change: Change, field_name: str, value: Any
) -> None:
    record = bench.publish(change=change)
    bench.put(replace(record, **{field_name: value}))
    assert field_name in bench.problems(record.tag)["record"]


def test_record_of_almost_the_same_digest_is_refused(
    bench: VerificationBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = bench.publish()
    digest = record.digest[:-1] + ("0" if record.digest[-1] != "0" else "1")
    forged = replace(bench.registry.manifests[record.digest], digest=digest)
    bench.registry.manifests[digest] = forged
    bench.registry.tagged[record.tag] = digest
    monkeypatch.setattr(module, "read_record", lambda *_: replace(record, digest=digest))
    assert [*bench.problems(record.moving[0])] == ["record"]


def test_record_differences_compare_whole_values(bench: VerificationBench) -> None:
    """Each field that is signed, to the last digit; a record may have fewer moving tags."""
    record = bench.publish()
    (predicate,) = [
        statement["predicate"]
        for _, _, statement in bench.cosign.statements
        if statement["predicateType"] == TYPES["slsaprovenance1"]
    ]
    (signed,), matrix = read_provenances([predicate]), bench.images[NAME].matrix
    last = "0" if record.input_digest[-1] != "0" else "1"
    changes: dict[str, Any] = {
        "input_digest": record.input_digest[:-1] + last,
        "tag": f"{record.tag}1",
        "moving": (*record.moving, "2-cpu"),
        "release": f"{record.release}1",
        "image": f"{record.image}-other",
    }
    for name, value in changes.items():
        assert [*record_differences(replace(record, **{name: value}), signed, matrix)] == [name]
    assert [*record_differences(replace(record, moving=()), signed, matrix)] == []


def test_missing_record_or_moved_immutable_tag(bench: VerificationBench) -> None:
    record, other = bench.publish(), bench.publish(OTHER)
    bench.registry.tagged[record.tag] = other.digest
    assert [*bench.problems(record.moving[0])] == ["record"]
    del bench.registry.tagged[f"{record.tag}.record"]
    assert [*bench.problems(record.moving[0])] == ["record"]


def test_other_verdict_in_the_record_is_noted(bench: VerificationBench) -> None:
    record = bench.publish()
    skipped = [Check(test="test_git", message="no git")]
    bench.put(replace(record, report={"pins": suite_result("pins", skipped=skipped)}))
    assert bench.problems(record.tag) == {}
    assert ["pins" in text for text in bench.notes] == [True]


def test_image_in_two_releases_may_have_tags_of_both(bench: VerificationBench) -> None:
    record = bench.publish()
    tag = planned_tags(bench.images[NAME], SECOND).immutable
    again = replace(record, release=SECOND, tag=tag, moving=("2.2-cpu",))
    bench.registry.tagged[tag] = record.digest
    bench.put(again)
    assert [*bench.problems(tag)] == ["tag"]
    bench.attest(again)
    for each in (tag, record.tag, *record.moving):
        assert bench.problems(each) == {}
    assert bench.notes == []


def test_configuration_must_be_the_signed_one(bench: VerificationBench) -> None:
    """A signed digest whose provenance is of another configuration, and one read in two ways."""

    def change(predicate: dict[str, Any]) -> None:
        config = predicate["buildDefinition"]["internalParameters"]["configuration"]["config"]
        config |= {"Entrypoint": None, "User": "me"}
        del config["Env"]

    record = bench.publish(change=change)
    found = bench.problems(record.tag)
    assert [*found] == ["configuration"]
    assert all(f"config.{name}" in found["configuration"] for name in ("Env", "User"))
    assert "Entrypoint" not in found["configuration"], "null and nothing are the same"


def test_manifest_with_doubled_keys_is_refused(bench: VerificationBench) -> None:
    record = bench.publish()
    manifest = bench.registry.manifests[record.digest]
    document = {**manifest.document(), "Config": manifest.document()["config"]}
    evil = bench.registry.add_manifest("evil", document, manifest.media_type)
    bench.cosign.signatures.add(("public own", bench.reference(evil.digest)))
    assert "configuration" in bench.problems("evil")


def test_layers_are_counted(bench: VerificationBench) -> None:
    """The configuration is the signed one, and the manifest has one layer more."""
    record = bench.publish()
    manifest = bench.registry.manifests[record.digest]
    document = {**manifest.document()}
    document["layers"] = [*document["layers"], *document["layers"]]
    evil = bench.registry.add_manifest("evil", document, manifest.media_type)
    reference = bench.reference(evil.digest)
    bench.cosign.signatures.add(("public own", reference))
    for _, _, statement in [*bench.cosign.statements]:
        kind, predicate = statement["predicateType"], statement["predicate"]
        bench.cosign.attest(reference, kind, predicate)
    assert "layers" in bench.problems("evil")["configuration"]


@pytest.mark.parametrize(
    "change",
    [
        lambda engine, stored: engine.configurations.update({stored.id: {"Env": ["A=2"]}}),
        lambda engine, stored: engine.configurations.update(
            {stored.id: {**engine.configurations[stored.id], "Entrypoint": ["/evil"]}}
        ),
        lambda engine, stored: engine.registry.update(
            {stored.digests[0]: replace(stored, layers=(digest_of(b"evil"),))}
        ),
    ],
)
def test_engine_must_read_the_same_configuration(
    bench: VerificationBench, change: Callable[[RunningEngine, StoredImage], object]
) -> None:
    record = bench.publish()
    change(bench.engine, bench.engine.registry[bench.reference(record.digest)])
    assert [*bench.problems(record.tag)] == ["contents"]
    assert not bench.engine.stored


def test_image_signed_before_releases_were(bench: VerificationBench) -> None:
    """Notes say what is not signed; its tags follow from its signed name and pins."""
    record, other = bench.publish(change=before_issue), bench.publish(OTHER, change=before_issue)
    for tag in (record.tag, *record.moving, input_tag(record.input_digest)):
        bench.said.clear()
        assert bench.problems(tag) == {}
        assert len(bench.notes) == 2
    bench.registry.tagged[record.moving[0]] = other.digest
    bench.put(replace(other, moving=(*other.moving, record.moving[0])))
    assert [*bench.problems(record.moving[0])] == ["tag", "record"]
    assert [*bench.problems(other.tag)] == ["record"]


def test_tags_before_follow_from_the_signed_pins(bench: VerificationBench) -> None:
    """The matrix has other versions by now; and it may have no such image any more."""

    def change(predicate: dict[str, Any]) -> None:
        before_issue(predicate)
        external = predicate["buildDefinition"]["externalParameters"]
        external["pins"] = {**external["pins"], "tensorflow": "2.2.0", "mpi": "openmpi-4.0.0"}

    record = bench.publish(change=change)
    tag = "2.2.0-cpu-py36-debian12-openmpi4.0.0-20261120.1"
    pins = {**record.pins, "tensorflow": "2.2.0", "mpi": "openmpi-4.0.0"}
    earlier = replace(record, tag=tag, moving=("2.2-cpu", "2.2.0-cpu"), pins=pins)
    bench.registry.tagged |= {tag: record.digest, "2.2.0-cpu": record.digest}
    bench.put(earlier)
    assert bench.problems("2.2.0-cpu") == bench.problems(tag) == {}
    assert "tag" in bench.problems("2.2.3-cpu")

    def rename(predicate: dict[str, Any]) -> None:
        change(predicate)
        predicate["buildDefinition"]["externalParameters"]["image"] = "tf-0.1-cpu-debian"

    bench.cosign.statements.clear()
    bench.attest(record, rename)
    assert "tf-0.1-cpu-debian" in bench.problems("2.2-cpu")["tag"]


def test_labels_of_an_earlier_provenance_are_compared(bench: VerificationBench) -> None:
    record = bench.publish(change=before_issue, Labels={NAME_LABEL: OTHER})
    found = bench.problems(record.tag)["configuration"]
    assert NAME_LABEL in found
    assert INPUT_DIGEST in found


@pytest.mark.parametrize("recorded", [True, False])
def test_signed_retirement_is_named(bench: VerificationBench, *, recorded: bool) -> None:
    """Also if somebody took it out of the record."""
    record = bench.publish()
    bench.cosign.attest(bench.reference(record.digest), RETIREMENT, RETIRED)
    if recorded:
        reason = RETIRED["reason"]
        bench.put(replace(record, retired=RETIRED["retired"], retired_reason=reason))
    found = bench.problems(record.tag)
    assert [*found] == ["retirement"]
    assert all(value in found["retirement"] for value in RETIRED.values())
    assert ("its record" in found["retirement"]) is not recorded


def test_retirement_of_the_record_alone_is_named(bench: VerificationBench) -> None:
    record = bench.publish()
    bench.put(replace(record, retired="2026-11-26", retired_reason="a guess"))
    found = bench.problems(record.tag)
    assert [*found] == ["retirement"]
    assert "a guess" in found["retirement"]
    assert "--sign-key" in found["retirement"]
    bench.cosign.attest(bench.reference(record.digest), RETIREMENT, RETIRED)
    found = bench.problems(record.tag)
    assert "a hole" in found["retirement"]
    assert "a guess" in found["retirement"]


def test_unanswered_question_is_not_in_use(bench: VerificationBench) -> None:
    """Neither if cosign could not ask, nor if it read all attestations but the retirement."""
    record = bench.publish()
    bench.cosign.errors[RETIREMENT] = "Error: GET http://r/v2/x.att: unexpected status code 500"
    assert [*bench.problems(record.tag)] == ["retirement"]
    stem = record.digest.replace(":", "-")
    layer = {"annotations": {"predicateType": RETIREMENT}, "digest": digest_of(b"x"), "size": 1}
    bench.registry.add_manifest(f"{stem}.att", {"layers": [layer]}, OCI_MANIFEST)
    assert [*bench.problems(record.tag)] == ["retirement"]
    bench.cosign.attest(bench.reference(record.digest), RETIREMENT, {"retired": "soon"})
    assert [*bench.problems(record.tag)] == ["retirement"]


def test_unreachable_registry_is_no_verdict(bench: VerificationBench) -> None:
    record = bench.publish()

    def before(call: str) -> None:
        if call.endswith(".att"):
            raise MachineError("no answer")

    bench.registry.before = before
    with pytest.raises(MachineError):
        bench.verify(record.tag)


def test_moving_tag_at_an_older_release_is_noted(bench: VerificationBench) -> None:
    first, second = bench.publish(), bench.publish(release=SECOND)
    other = bench.publish(OTHER, "20261122.1")
    bench.put(replace(other, image=NAME))  # which nobody signed
    assert bench.problems("2.2-cpu") == {}
    assert bench.notes == []
    bench.registry.tagged["2.2-cpu"] = first.digest
    assert bench.problems("2.2-cpu") == {}
    (note,) = bench.notes
    assert FIRST in note
    assert second.tag in note
    bench.said.clear()
    assert bench.problems(first.tag) == {}, "it is asked of moving tags alone"
    assert bench.problems("2.2-cpu", second.digest) == {}
    assert bench.notes == []
    # Without its record, it is found by its tag; unsigned, it is nobody's.
    del bench.registry.tagged[f"{second.tag}.record"]
    bench.verify("2.2-cpu")
    assert second.tag in bench.notes[0]
    bench.said.clear()
    reference = bench.reference(second.digest)
    kept = [one for one in bench.cosign.statements if one[1] != reference]
    bench.cosign.statements[:] = kept
    assert bench.problems("2.2-cpu") == {}
    assert bench.notes == []


def test_provenance_of_another_program_is_refused(bench: VerificationBench) -> None:
    record = bench.publish(change=lambda one: one["buildDefinition"].update(buildType="urn:x"))
    assert "provenance" in bench.problems(record.tag)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one["buildDefinition"].pop("externalParameters"),
        lambda one: one["buildDefinition"]["externalParameters"].pop("release"),
        lambda one: one["buildDefinition"]["externalParameters"].update(release="1"),
        lambda one: one["buildDefinition"]["externalParameters"].update(tags=["a"]),
        lambda one: one["buildDefinition"]["internalParameters"].update(inputDigest="sha256:1"),
        lambda one: one["runDetails"]["byproducts"][0].update(annotations=None),
    ],
)
def test_provenance_of_another_form_is_refused(bench: VerificationBench, change: Change) -> None:
    record = bench.publish(change=change)
    assert "provenance" in bench.problems(record.tag)
