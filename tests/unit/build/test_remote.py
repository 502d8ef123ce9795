"""Builds with remote stores: what is taken and kept, and that no store fails a build."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest
from bench import NEW, OLD, Bench
from fake_engine import FakeEngine
from memory_registry import MemoryRegistry
from test_horovod_wheels import WHEEL

from imgbuild.build.artifact_store import VERDICTS_TYPE, ArtifactStore
from imgbuild.build.horovod_wheels import WheelCache, wheel_key
from imgbuild.build.remote import RemoteStore, RemoteStores
from imgbuild.build.result import BuildResult
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY, TAKEN_WHEEL
from imgbuild.errors import CheckFailedError
from imgbuild.matrix.tags import input_tag
from imgbuild.plan.plan import PlanItem
from imgbuild.registry.repository import OCI_MANIFEST, Manifest, digest_of
from imgbuild.registry.signing import Trust


class PushingEngine(FakeEngine):
    """An engine that pushes into a registry in memory, and pulls from there."""

    def __init__(self, server: MemoryRegistry) -> None:
        super().__init__()
        self.server = server

    def push(
        self, reference: str, on_message: Callable[[Mapping[str, object]], None] = print
    ) -> None:
        super().push(reference, on_message)
        image = self.registry[reference]
        content = json.dumps({"config": {"digest": image.id}, "layers": []}).encode()
        digest, tag = digest_of(content), reference.rpartition(":")[2]
        self.server.manifests[digest] = Manifest(digest, OCI_MANIFEST, content)
        self.server.tagged[tag] = digest


@dataclass
class Machines:
    """Machines that share a repository and nothing else."""

    bench: Bench
    server: MemoryRegistry = field(default_factory=MemoryRegistry)
    count: int = 0

    def another(self) -> None:
        """Go to a machine whose engine, state and cache are empty."""
        self.count += 1
        engine = PushingEngine(self.server)
        if self.count > 1:
            engine.registry = self.bench.engine.registry
        place = self.bench.context.state.parent / f"machine-{self.count}"
        self.bench.change(engine=engine, state=place, cache=place / "cache")
        for seen in (self.bench.baked, self.bench.tested, self.bench.said, self.server.calls):
            seen.clear()

    def build(
        self, *, read: bool = True, write: bool = True, test: bool = True
    ) -> dict[str, BuildResult]:
        store = RemoteStore(self.server, self.bench.said.append)
        self.bench.stores = RemoteStores((store,) * read, (store,) * write)
        return {one.name: one for one in self.bench.build(test=test, keep_going=True)}

    def actions(self, **how: bool) -> list[str]:
        return [str(one.item.action) for one in self.build(**how).values()]


@pytest.fixture
def machines(bench: Bench) -> Machines:
    made = Machines(bench)
    made.another()
    return made


def test_only_what_passed_is_kept_and_that_only_once(machines: Machines) -> None:
    machines.bench.faulty = {NEW}
    machines.build()
    for seen in (machines.bench.said, machines.bench.engine.calls, machines.server.calls):
        seen.clear()
    machines.build()
    assert not {*machines.bench.engine.calls} & {"push", "pull", "load"}
    assert not any(call.startswith("put") for call in machines.server.calls)
    assert not machines.bench.said
    machines.another()
    assert machines.actions() == ["tag", "build"]


def test_what_was_tagged_untested_is_tested_where_it_comes(machines: Machines) -> None:
    machines.build(test=False)
    machines.another()
    results = machines.build()
    assert {str(one.item.action) for one in results.values()} == {"test"}
    assert results[OLD].item.reason.endswith("not tested yet")
    assert sorted(machines.bench.tested) == [OLD, NEW]
    assert not machines.bench.baked
    machines.another()
    assert machines.actions() == ["tag", "tag"]  # the verdicts came after the images


def test_images_that_are_there_take_their_verdicts_alone(machines: Machines) -> None:
    machines.build()
    before = machines.bench.engine.stored
    machines.another()
    machines.bench.engine.stored = before
    assert machines.actions() == ["nothing", "nothing"]
    assert not machines.bench.tested


def test_verdicts_count_for_one_input_digest_and_its_layers() -> None:
    """Also where somebody moves a tag: the key in the file is of the image that it is about."""
    server = MemoryRegistry()
    kept, layers = ArtifactStore(server, print), ("sha256:" + "e" * 64,)
    passed, failed = ({"pins": {"key": "k", "verdict": one}} for one in ("passed", "failed"))
    for suites in (failed, passed):  # the later one counts
        kept.keep_verdicts("sha256:a", layers, suites)
    assert kept.verdicts("sha256:a", layers) == passed
    assert kept.verdicts("sha256:a", ()) == {}
    (good,) = server.tagged
    kept.keep_verdicts("sha256:b", layers, failed)
    (other,) = {*server.tagged} - {good}
    server.tagged[other] = server.tagged[good]
    assert kept.verdicts("sha256:b", layers) == {}
    server.calls.clear()
    kept.keep_verdicts("sha256:a", layers, {"pins": {**passed["pins"], "before": "later"}})
    assert not [call for call in server.calls if "put" in call]


@pytest.mark.parametrize("other", ["", NAME, INPUT_DIGEST, REPOSITORY, "id"])
def test_an_image_of_a_repository_is_the_one_that_was_asked_for(
    machines: Machines, other: str
) -> None:
    machines.build()
    bench = machines.bench
    item = bench.plan()[0]
    reference = f"{machines.server.name}:{input_tag(item.digest.total)}"
    machines.another()
    found = bench.engine.registry[reference]
    change = {"id": "sha256:x"} if other == "id" else {"labels": {**found.labels, other: "x"}}
    bench.engine.registry[reference] = replace(found, **change if other else {})
    pulled = RemoteStore(machines.server, bench.said.append).pull(item, bench.engine)
    assert (pulled is None) is bool(other)
    assert (reference in bench.tags()) is not bool(other)


@pytest.mark.parametrize(("read", "write"), [(True, False), (False, True)])
def test_a_store_is_only_read_or_only_written(machines: Machines, read: bool, write: bool) -> None:
    machines.build(read=False, write=not write)
    machines.another()
    assert machines.actions(read=read, write=write) == (["build"] * 2 if write else ["tag"] * 2)


def _built_with_a_wheel(machines: Machines) -> None:
    """Build images that fail, by a wheel that this machine has kept."""
    bench = machines.bench
    context = bench.context
    key = wheel_key(context.images[0], context.project, context.inputs)
    assert key
    WheelCache(context.cache).keep(key, WHEEL)
    bench.faulty = {OLD, NEW}
    machines.build()


def test_a_taken_wheel_is_used_only_with_its_store_and_its_image_says_so(
    machines: Machines,
) -> None:
    bench = machines.bench
    _built_with_a_wheel(machines)
    for read in (True, False):
        if read:
            machines.another()
        bench.engine.stored.clear()
        machines.build(read=read, write=False)
        marked = {one.name for one in bench.targets if TAKEN_WHEEL in one.labels}
        assert marked == ({OLD} if read else set())
        exported = {one.name for one in bench.targets if one.output.startswith("type=local")}
        assert (f"{OLD}-horovod-wheel" in exported) is not read


def test_with_trust_nothing_is_taken_that_is_not_signed(machines: Machines) -> None:
    """Neither images nor verdicts, which could be forged, nor wheels."""
    bench = machines.bench
    _built_with_a_wheel(machines)
    bench.faulty = set()
    machines.build()
    machines.another()
    trust = Mock(spec=Trust)
    trust.require_signature.side_effect = CheckFailedError("somebody else signed it")
    trust.attested.side_effect = CheckFailedError("nothing of the kind is trusted")
    bench.stores = RemoteStores((RemoteStore(machines.server, bench.said.append, trust),), ())
    results = bench.build(test=True, keep_going=True)
    assert [str(one.item.action) for one in results] == ["build", "build"]
    assert len([one for one in bench.said if "somebody else signed it" in one]) == 2
    assert not [one for one in bench.targets if TAKEN_WHEEL in one.labels]
    # The same image again, of which no verdict is here: it is tested, not believed.
    bench.tested.clear()
    bench.change(state=bench.context.state.parent / "other")
    bench.build(test=True, keep_going=True)
    assert bench.tested


def test_damaged_verdicts_are_said_and_made_again(machines: Machines) -> None:
    machines.build()
    tag = next(tag for tag in machines.server.tagged if tag.startswith("verdicts-"))
    machines.server.put_artifact(tag, "text/plain", b"x")
    machines.another()
    assert sorted(machines.actions()) == ["tag", "test"]
    assert any("It is made again" in line for line in machines.bench.said)
    assert machines.server.read_artifact(tag, VERDICTS_TYPE)


def test_an_interrupt_before_the_tags_loses_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = machines.bench
    machines.build()
    machines.another()
    with monkeypatch.context() as patch:
        patch.setattr("imgbuild.build.gate._test_and_tag", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            machines.build()
    assert all(tag.startswith(f"{machines.server.name}:input-") for tag in bench.tags())
    assert len(bench.tags()) == 2
    assert machines.actions() == ["tag", "tag"]
    assert bench.tags() == bench.tags(OLD) | bench.tags(NEW)


def provenance(item: PlanItem, **changes: str) -> dict[str, Any]:
    """Return what a provenance says of the image of a plan."""
    said = {"image": item.image.name, "inputDigest": item.digest.total, **changes}
    return {
        "buildDefinition": {
            "externalParameters": {"image": said["image"]},
            "internalParameters": {"inputDigest": said["inputDigest"]},
        }
    }


@pytest.mark.parametrize("key", ["image", "inputDigest", ""])
def test_image_of_another_provenance_is_not_taken(machines: Machines, key: str) -> None:
    """One that is built on ours inherits all labels, and the same key may have signed it."""
    bench = machines.bench
    machines.build()
    (item, *_) = bench.plan()
    predicate = provenance(item, **{key: "another"}) if key else {"buildDefinition": []}
    machines.another()
    trust = Mock(spec=Trust, fingerprint="whose", attested=Mock(return_value=(predicate,)))
    store = RemoteStore(machines.server, bench.said.append, trust)
    assert store.pull(item, bench.context.engine) is None
    assert item.image.name in bench.said[-1]
    trust.attested.return_value = (predicate, provenance(item))
    assert store.pull(item, bench.context.engine)


@pytest.mark.parametrize("signed", [True, False])
def test_with_trust_the_results_that_are_signed_count(machines: Machines, *, signed: bool) -> None:
    """The image is not tested again, and it is known who signed it.

    Without a provenance it is not taken: whoever signs images signs that, too.

    Nor are they of another image with the same inputs, which the engine may have.
    """
    bench, server, kept = machines.bench, machines.server, machines.bench.context.store
    machines.build()
    items = bench.plan()

    def attested(reference: str, kind: str) -> tuple[Mapping[str, Any], ...]:
        assert kind == "slsaprovenance1"
        if not signed:
            raise CheckFailedError(f"{reference}: nothing of the kind is trusted.")
        manifest = json.loads(server.manifests[reference.partition("@")[2]].content)
        document = kept.document(manifest["config"]["digest"])
        entries = [{"name": f"suite {n}", "annotations": one} for n, one in document.items()]
        details = {"byproducts": [{"name": "sbom"}, *entries]}
        return tuple({**provenance(item), "runDetails": details} for item in items)

    trust = Mock(spec=Trust, fingerprint="whose", attested=attested)
    store = RemoteStore(server, bench.said.append, trust)
    for item in items:
        image = bench.engine.stored[item.image_id or ""]
        assert bool(store.verdicts(item, image)) is signed
        assert store.verdicts(item, replace(image, id="sha256:" + "e" * 64)) is None
    machines.another()
    bench.stores = RemoteStores((store,), ())
    results = bench.build(test=True, keep_going=True)
    assert bool(bench.baked) is bool(bench.tested) is not signed
    assert all(one.ok for one in results)
    reports = bench.context.store
    for one in results:
        assert reports.signed_by(one.image_id or "") == ("whose" if signed else None)
        if signed:
            entries = reports.document(one.image_id or "").values()
            assert {entry["signed_by"] for entry in entries} == {"whose"}
