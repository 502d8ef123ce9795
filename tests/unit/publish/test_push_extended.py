"""Pushes of images of `imgbuild extend`: the same order and rules, with tags of their own."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError
from imgbuild.core.project import Project
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import input_tag
from imgbuild.net.repository import Manifest
from imgbuild.net.signing import Trust
from imgbuild.publish import verification
from imgbuild.publish.extended_candidate import ExtendedCandidate
from imgbuild.publish.inspection import inspect_repository
from imgbuild.publish.life_cycle import find_old
from imgbuild.publish.provenance import (
    EXTENSION_TYPE,
    make_extension_provenance,
    read_configuration,
)
from imgbuild.publish.record import Record, put_record, read_published
from imgbuild.publish.signed_image import read_provenances, record_differences
from imgbuild.publish.verification import verify_image
from support.extended_images import DIGEST, LABELS, REFERENCE
from support.fake_cosign import FakeCosign
from support.memory_registry import MemoryRegistry
from support.paused_push import PausedPush, WatchedTags, shared_signatures
from support.push_bench import NAME, REPORT, id_of
from support.signed_push_bench import SignedBench

FIRST, SECOND = "1-20261120.1", "1-20261120.2"
BASE = f"registry.example.org/ml/tensorflow:2.2-cpu@{DIGEST}"


def extended(image: Image, content: str, image_id: str = "") -> ExtendedCandidate:
    """Return the extension whose content is a word."""
    stored = StoredImage(image_id or id_of(content), (REFERENCE,), {**LABELS, "word": content})
    return ExtendedCandidate(REFERENCE, stored, image, REPORT, ("horovod",))


@dataclass
class ExtendedBench(SignedBench):
    """A bench that pushes extensions, with their true provenance."""

    project: Project | None = None

    def candidate(self, content: str = "one", image_id: str = "") -> Any:
        return extended(self.image, content, image_id)

    def push_extended(self, content: str = "one", release: str | None = None) -> Any:
        session, candidate = self.session(release), self.candidate(content)

        def documents(record: Record, manifest: Manifest) -> dict[str, bytes]:
            assert self.project
            configuration = read_configuration(self.registry, manifest)
            made = make_extension_provenance(candidate, record, configuration, self.project, "{}")
            return {"cyclonedx": b"{}", "slsaprovenance1": json.dumps(made).encode()}

        self.registry.calls.clear()
        return session.push(candidate, lambda tag: self.upload(content, tag), documents)


@pytest.fixture
def bench(images: dict[str, Image], project: Project) -> ExtendedBench:
    return ExtendedBench(images[NAME], project=project)


def test_extension_gets_a_tag_that_never_moves(bench: ExtendedBench) -> None:
    found = bench.push_extended()
    assert found.done == ("pushed", "signed", "recorded", "moved 1")
    digest = found.record.digest
    assert bench.digests(FIRST, "1", input_tag(found.record.input_digest)) == {digest}
    assert [*bench.signer.signed] == [digest]
    facts = (found.record.image, found.record.base, found.record.lock, found.record.not_run)
    assert facts == ("train:1", BASE, LABELS["imgbuild.added.lock"], ("horovod",))
    assert bench.push_extended().steps == ()
    assert bench.writes() == []
    later = bench.push_extended("two").record
    assert later.tag == SECOND
    assert bench.digests(FIRST) == {digest}
    assert bench.digests("1") == {later.digest}
    assert bench.push_extended("one").kept == (f"1 stays at {SECOND}",)


def test_extension_never_overwrites_another_image(bench: ExtendedBench) -> None:
    bench.push_extended("other", "20261120.1")
    before = dict(bench.registry.tagged)
    with pytest.raises(CheckFailedError, match=r"--release 20261120\.2"):
        bench.push_extended("one", "20261120.1")
    assert bench.registry.tagged == before


@pytest.mark.parametrize("call", [f"put {FIRST}", f"put {FIRST}.record", "put 1"])
def test_interrupted_push_is_completed(bench: ExtendedBench, call: str) -> None:
    """Whatever request it was cut off at, nothing that is pulled was incomplete."""
    bench.at(call, lambda: pytest.fail("killed"))
    with pytest.raises(BaseException, match="killed"):
        bench.push_extended()
    assert "1" not in bench.registry.tagged
    found = bench.push_extended()
    assert bench.digests(FIRST, "1") == {found.record.digest} == {*bench.signer.signed}


def test_extension_is_signed_with_what_it_is_based_on(bench: ExtendedBench) -> None:
    record = bench.push_extended().record
    (predicate,) = bench.signer.read_attestations(f"x@{record.digest}", "slsaprovenance1")
    definition = predicate["buildDefinition"]
    assert definition["buildType"] == EXTENSION_TYPE
    materials = {one["name"]: one["digest"]["sha256"] for one in definition["resolvedDependencies"]}
    lock = LABELS["imgbuild.added.lock"].removeprefix("sha256:")
    assert materials == {"base": DIGEST.removeprefix("sha256:"), "lock": lock}
    suites = {one["name"] for one in predicate["runDetails"]["byproducts"]}
    assert suites == {"sbom", "suite pins"}
    (signed,) = read_provenances([predicate])
    assert (signed.image, signed.tag, signed.moving) == ("train:1", FIRST, ("1",))
    assert (signed.base, signed.lock) == (BASE, LABELS["imgbuild.added.lock"])
    assert (signed.verdicts, signed.not_run) == ({"pins": "passed"}, ("horovod",))
    assert not [*record_differences(record, signed, bench.image.matrix)]
    for name in ("base", "lock"):
        changed = replace(record, **{name: ""})
        assert [*record_differences(changed, signed, bench.image.matrix)] == [name]


@pytest.fixture
def verifying(bench: ExtendedBench, monkeypatch: pytest.MonkeyPatch) -> FakeCosign:
    """Return cosign for `imgbuild verify`, which does not read the running image here."""
    monkeypatch.setattr(verification, "connect", lambda *_: bench.registry)
    monkeypatch.setattr(verification, "_require_contents", lambda *_: None)
    return FakeCosign()


def _signatures(bench: ExtendedBench, cosign: FakeCosign) -> None:
    for digest, documents in bench.signer.signed.items():
        reference = f"{bench.registry.name}@{digest}"
        cosign.signatures.add(("public own", reference))
        for kind, content in documents.items():
            cosign.attest(reference, kind, json.loads(content))


def test_verify_says_base_lock_and_suites(
    bench: ExtendedBench, verifying: FakeCosign, project: Project
) -> None:
    record = bench.push_extended().record
    _signatures(bench, verifying)
    trust: Any = Trust(verifying, "public own")
    for tag in ("1", FIRST):
        name = f"{bench.registry.name}:{tag}"
        _, facts = verify_image(name, trust, project, print)
        assert {fact.problem for fact in facts} == {""}
        said = {fact.name: fact.text for fact in facts if fact.text}
        assert said["base"] == record.base
        assert said["lock"] == record.lock
        assert said["suites"] == "pins passed; not run: horovod"
    put_record(
        bench.registry,
        replace(record, base="imgbuild/other:1@sha256:0"),
        bench.registry.manifests[record.digest],
    )
    name = f"{bench.registry.name}:{FIRST}"
    _, facts = verify_image(name, trust, project, print)
    assert [fact.name for fact in facts if fact.problem] == ["record"]


def test_check_of_a_repository_accepts_extensions(
    bench: ExtendedBench, verifying: FakeCosign
) -> None:
    bench.push_extended()
    bench.push_extended("two")
    _signatures(bench, verifying)
    trust: Any = Trust(verifying, "public own")
    found = read_published(bench.registry)
    assert not [*inspect_repository(bench.registry, found, bench.image.matrix, trust)]
    del bench.registry.tagged[FIRST]
    found = read_published(bench.registry)
    assert [*inspect_repository(bench.registry, found, bench.image.matrix, trust)]


def test_prune_keeps_releases_of_each_name(bench: ExtendedBench) -> None:
    """And whatever the moving tag is at."""
    for word in ("one", "two", "three"):
        bench.push_extended(word)
    bench.registry.tagged["1"] = bench.registry.tagged[FIRST]
    assert [record.tag for record in _old(bench.registry)] == [SECOND]
    bench.registry.tagged["1"] = bench.registry.tagged["1-20261120.3"]
    assert [record.tag for record in _old(bench.registry)] == [FIRST, SECOND]


def _old(registry: MemoryRegistry) -> tuple[Record, ...]:
    published = read_published(registry)
    return find_old(registry, published, registry.heads(published.tags), keep=1)


@pytest.mark.parametrize("kills", ["none", "both"])
def test_immutable_tag_of_an_extension_never_moves(images: dict[str, Image], kills: str) -> None:
    """As `test_push_races`, at fewer moments: only the tags are others."""
    image = images[NAME]
    for before in range(1, 60, 4):
        for meanwhile in range(1, 60, 7):
            registry = MemoryRegistry()
            registry.tagged = WatchedTags(FIRST)
            first, second = (
                PausedPush(image, word, registry, ExtendedBench) for word in ("one", "two")
            )
            first.run(before)
            second.run(meanwhile)
            if kills == "both":
                first.kill()
                second.kill()
            first.run()
            second.run()
            moment = f"{before}, then {meanwhile}, killed: {kills}"
            assert len(registry.tagged.fixed) <= 1, moment
            for word in ("one", "two"):
                bench = ExtendedBench(image, registry=registry)
                bench.signer.signed = shared_signatures(registry)
                bench.push_signed(word)
            assert len(registry.tagged.fixed) <= 1, moment
            signed = {registry.manifests[one].config_digest for one in shared_signatures(registry)}
            assert len(signed) == 2, moment
