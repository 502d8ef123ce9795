"""Builds with ``--pull``: which images and results count, and that no repository ends a build."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest

from imgbuild.build.pull import PullSource, predict_pull
from imgbuild.build.result import BuildResult
from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.matrix.tags import input_tag
from imgbuild.net.repository import OCI_MANIFEST, Manifest, digest_of
from imgbuild.net.signing import Trust
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import suite_byproducts
from imgbuild.suites.store import ReportStore
from support.bench import NEW, OLD, Bench
from support.fake_engine import FakeEngine
from support.memory_registry import MemoryRegistry


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
    """Machines that share a repository and nothing else; the first one publishes its images.

    ``signed`` says whether the provenance of the images has a trusted signature.
    """

    bench: Bench
    server: MemoryRegistry = field(default_factory=MemoryRegistry)
    count: int = 0
    items: tuple[PlanItem, ...] = ()
    reports: ReportStore | None = None
    signed: bool = True

    def another(self) -> None:
        """Go to a machine whose engine, state and cache are empty."""
        self.count += 1
        engine = PushingEngine(self.server)
        if self.count > 1:
            engine.registry = self.bench.engine.registry
        place = self.bench.context.state.parent / f"machine-{self.count}"
        self.bench.change(engine=engine, state=place)
        for seen in (self.bench.baked, self.bench.tested, self.bench.said, self.server.calls):
            seen.clear()

    def publish(self) -> None:
        """Build images, and give them their input tags in the repository."""
        self.bench.build()
        self.items, self.reports = self.bench.plan(), self.bench.context.store
        for item in self.items:
            reference = self.reference(item)
            self.bench.engine.tag(str(item.image_id), reference)
            self.bench.engine.push(reference)
            self.bench.engine.untag(reference)

    def reference(self, item: PlanItem) -> str:
        return f"{self.server.name}:{input_tag(item.digest.total)}"

    def source(self, trust: Trust | None = None) -> PullSource:
        return PullSource(self.server, self.bench.said.append, trust)

    def trust(self) -> Mock:
        return Mock(spec=Trust, fingerprint="whose", read_attestations=self._attested)

    def pull(self, trust: Trust | None = None) -> list[BuildResult]:
        """Build with ``--pull``."""
        self.bench.source = self.source(trust)
        return self.bench.build(keep_going=True)

    def _attested(self, reference: str, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Return provenances with the results of the machine that published."""
        assert kind == "slsaprovenance1"
        if not self.signed:
            raise CheckFailedError(f"{reference}: nothing of the kind is trusted.")
        assert self.reports
        manifest = json.loads(self.server.manifests[reference.partition("@")[2]].content)
        results = self.reports.results(manifest["config"]["digest"])
        entries = suite_byproducts(results, dict.fromkeys(results, ""))
        details = {"byproducts": [{"name": "sbom"}, *entries]}
        return tuple({**provenance(item), "runDetails": details} for item in self.items)


def provenance(item: PlanItem, **changes: str) -> dict[str, Any]:
    """Return what a provenance says of the image of a plan."""
    said = {"image": item.image.name, "inputDigest": item.digest.total, **changes}
    return {
        "buildDefinition": {
            "externalParameters": {"image": said["image"]},
            "internalParameters": {"inputDigest": said["inputDigest"]},
        }
    }


def actions(results: list[BuildResult]) -> set[str]:
    return {str(one.item.action) for one in results}


@pytest.fixture
def machines(bench: Bench) -> Machines:
    """Give a machine with nothing, and a repository with both images."""
    made = Machines(bench)
    made.another()
    made.publish()
    made.another()
    return made


def test_unsigned_image_is_pulled_and_tested_here(machines: Machines) -> None:
    """Whoever can write to the repository could have written results, too."""
    bench = machines.bench
    results = machines.pull()
    assert actions(results) == {"test"}
    assert {one.state for one in results} == {"done"}
    for one in results:
        assert one.item.reason == f"pulled from {machines.server.name}, not tested yet"
        assert bench.context.store.is_own(one.image_id or "")
        assert not bench.context.store.was_built_here(one.image_id or "")
    assert sorted(bench.tested) == [OLD, NEW]
    assert not bench.baked
    assert bench.tags() == bench.tags(OLD) | bench.tags(NEW)
    assert actions(machines.pull()) == {"nothing"}


def test_image_is_pulled_for_its_platform(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for the engine's: the input tag names one image, and no index."""
    pulled: list[tuple[str, str | None]] = []
    engine = machines.bench.engine
    monkeypatch.setattr(engine, "_pull", lambda *arguments: pulled.append(arguments))
    for item in machines.items:
        other = replace(item, image=replace(item.image, architecture="arm64"))
        assert machines.source().pull(other, engine) is None
    assert pulled == [(machines.reference(item), "linux/arm64") for item in machines.items]


def test_pulled_image_that_fails_its_suites_is_not_tagged(machines: Machines) -> None:
    machines.bench.faulty = {NEW}
    assert {one.name: one.state for one in machines.pull()} == {OLD: "done", NEW: "suites failed"}
    assert not machines.bench.tags(NEW) & machines.bench.tags()


def test_only_images_to_build_are_pulled(machines: Machines) -> None:
    bench = machines.bench
    bench.build()
    bench.engine.calls.clear()
    assert actions(machines.pull()) == {"nothing"}
    assert "pull" not in bench.engine.calls


def test_plan_says_what_would_be_pulled(machines: Machines) -> None:
    old, new = machines.bench.plan()
    del machines.server.tagged[input_tag(new.digest.total)]
    source = machines.source()
    assert predict_pull(old, source).reason.endswith(f"would be pulled from {machines.server.name}")
    assert predict_pull(new, source) == new
    assert predict_pull(replace(old, action=Action.TEST), source).reason == old.reason
    assert "pull" not in machines.bench.engine.calls


@pytest.mark.parametrize("other", ["", NAME, INPUT_DIGEST, REPOSITORY, "id"])
def test_an_image_of_a_repository_is_the_one_that_was_asked_for(
    machines: Machines, other: str
) -> None:
    bench = machines.bench
    item = bench.plan()[0]
    reference = machines.reference(item)
    found = bench.engine.registry[reference]
    change = {"id": "sha256:x"} if other == "id" else {"labels": {**found.labels, other: "x"}}
    bench.engine.registry[reference] = replace(found, **change if other else {})
    pulled = machines.source().pull(item, bench.engine)
    assert (pulled is None) is bool(other)
    assert (reference in bench.tags()) is not bool(other)


def test_repository_that_fails_is_reported_once(machines: Machines) -> None:
    def fail(_: str) -> None:
        raise MachineError("no route to it")

    machines.server.before = fail
    results = machines.pull()
    assert actions(results) == {"build"}
    assert {one.state for one in results} == {"done"}
    assert len([one for one in machines.bench.said if "no route to it" in one]) == 1


def test_image_without_a_trusted_signature_is_built(machines: Machines) -> None:
    bench, trust = machines.bench, machines.trust()
    trust.require_signature.side_effect = CheckFailedError("somebody else signed it")
    assert actions(machines.pull(trust)) == {"build"}
    assert len([one for one in bench.said if "somebody else signed it" in one]) == 2


@pytest.mark.parametrize("key", ["image", "inputDigest", ""])
def test_image_of_another_provenance_is_not_taken(machines: Machines, key: str) -> None:
    """One that is built on ours inherits all labels, and the same key may have signed it."""
    bench = machines.bench
    (item, *_) = bench.plan()
    predicate = provenance(item, **{key: "another"}) if key else {"buildDefinition": []}
    trust = Mock(spec=Trust, fingerprint="whose", read_attestations=Mock(return_value=(predicate,)))
    source = machines.source(trust)
    assert source.pull(item, bench.context.engine) is None
    assert item.image.name in bench.said[-1]
    trust.read_attestations.return_value = (predicate, provenance(item))
    assert source.pull(item, bench.context.engine)


@pytest.mark.parametrize("signed", [True, False])
def test_with_trust_the_results_that_are_signed_count(machines: Machines, *, signed: bool) -> None:
    """The image is not tested again, and it is known who signed it.

    Without a provenance it is not taken: whoever signs images signs that, too.
    """
    bench, machines.signed = machines.bench, signed
    results = machines.pull(machines.trust())
    assert all(one.ok for one in results)
    assert actions(results) == {"tag" if signed else "build"}
    assert bool(bench.baked) is bool(bench.tested) is not signed
    reports = bench.context.store
    for one in results:
        assert reports.signed_by(one.image_id or "") == ("whose" if signed else None)
        assert reports.verified_by(one.image_id or "") == ("whose" if signed else None)
        if signed:
            suites = reports.results(one.image_id or "").values()
            assert {suite.signed_by for suite in suites} == {"whose"}
            assert {suite.found for suite in suites} == {machines.server.name}


def test_signed_results_are_of_the_published_image_alone(machines: Machines) -> None:
    """The engine may have another image with the same inputs."""
    source = machines.source(machines.trust())
    for item in machines.items:
        reference = machines.reference(item)
        image = machines.bench.engine.registry[reference]
        assert source.signed_results(item, image)
        assert source.signed_results(item, replace(image, id="sha256:" + "e" * 64)) is None
        assert machines.source().signed_results(item, image) is None
        machines.signed = False
        assert source.signed_results(item, image) is None
        machines.signed = True


def test_image_of_the_engine_gets_its_signed_results(machines: Machines) -> None:
    """It was pulled before, and no suite has run in it since."""
    bench = machines.bench
    machines.bench.source = machines.source()
    bench.build(test=False)
    assert not bench.tested
    assert actions(machines.pull(machines.trust())) == {"nothing"}
    assert not bench.tested


def test_an_interrupt_before_the_tags_loses_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = machines.bench
    with monkeypatch.context() as patch:
        patch.setattr("imgbuild.build.workers.test_and_tag", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            machines.pull(machines.trust())
    assert all(tag.startswith(f"{machines.server.name}:input-") for tag in bench.tags())
    assert len(bench.tags()) == 2
    assert actions(machines.pull(machines.trust())) == {"tag"}
    assert bench.tags() == bench.tags(OLD) | bench.tags(NEW)
