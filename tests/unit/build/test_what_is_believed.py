"""What a build believes of a repository and of its own engine, one fact at a time."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import NEW, OLD, Bench
from memory_registry import MemoryRegistry

from imgbuild.build import pipeline
from imgbuild.build.artifact_store import ArtifactStore
from imgbuild.build.context import image_locks
from imgbuild.build.horovod_wheels import wheel_key
from imgbuild.build.prepare import prepare
from imgbuild.build.remote import RemoteStore
from imgbuild.build.result import BuildResult
from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.inputs.build_inputs import ImageDownloads
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import input_tag
from imgbuild.publish.upload import Uploader
from imgbuild.registry.repository import OCI_MANIFEST, Manifest, digest_of

LAYERS = ("sha256:" + "e" * 64,)
TOTALS = tuple("sha256:" + letter * 64 for letter in "ab")
PASSED = {"pins": {"key": "k", "verdict": "passed"}}


@pytest.fixture
def artifacts() -> ArtifactStore:
    return ArtifactStore(MemoryRegistry(), print)


def test_verdicts_count_for_one_input_digest_and_its_layers(artifacts: ArtifactStore) -> None:
    """Also where somebody moves a tag: the key in the file is of the image that it is about."""
    artifacts.keep_verdicts(TOTALS[0], LAYERS, PASSED)
    assert artifacts.verdicts(TOTALS[0], LAYERS) == PASSED
    assert artifacts.verdicts(TOTALS[0], ()) == {}
    tagged = artifacts.client.tagged  # type: ignore[attr-defined]
    (good,) = tagged
    artifacts.keep_verdicts(TOTALS[1], LAYERS, {"pins": {"key": "k", "verdict": "failed"}})
    (other,) = {*tagged} - {good}
    tagged[other] = tagged[good]
    assert artifacts.verdicts(TOTALS[1], LAYERS) == {}


def test_another_verdict_replaces_the_one_that_is_kept(artifacts: ArtifactStore) -> None:
    failed = {"pins": {"key": "k", "verdict": "failed"}}
    artifacts.keep_verdicts(TOTALS[0], LAYERS, failed)
    artifacts.keep_verdicts(TOTALS[0], LAYERS, PASSED)
    assert artifacts.verdicts(TOTALS[0], LAYERS) == PASSED
    artifacts.client.calls.clear()  # type: ignore[attr-defined]
    artifacts.keep_verdicts(TOTALS[0], LAYERS, {"pins": {**PASSED["pins"], "before": "later"}})
    assert not [one for one in artifacts.client.calls if "put" in one]  # type: ignore[attr-defined]


@pytest.mark.parametrize("other", ["", "imgbuild.name", INPUT_DIGEST, "imgbuild.repository", "id"])
def test_an_image_of_a_repository_is_the_one_that_was_asked_for(bench: Bench, other: str) -> None:
    bench.build()
    (item, *_) = bench.plan()
    stored = bench.engine.stored.pop(item.image_id or "")
    server = MemoryRegistry("registry.example.org/ci/cache")
    content = json.dumps({"config": {"digest": stored.id}, "layers": []}).encode()
    manifest = Manifest(digest_of(content), OCI_MANIFEST, content)
    tag = input_tag(item.digest.total)
    server.manifests[manifest.digest], server.tagged[tag] = manifest, manifest.digest
    labels = {**stored.labels, **({other: "sha256:x"} if "." in other else {})}
    found = replace(stored, tags=(), labels=labels)
    reference = f"{server.name}:{tag}"
    there = replace(found, id="sha256:other" if other == "id" else found.id, tags=(reference,))
    bench.engine.registry[reference] = there
    pulled = RemoteStore(server, bench.said.append).pull(item, bench.engine)
    assert (pulled is None) is bool(other)
    assert (reference in bench.tags()) is not bool(other)


def test_an_image_that_is_only_tested_here_was_not_built_here(bench: Bench) -> None:
    bench.build(test=False)
    ids = [item.image_id or "" for item in bench.plan()]
    assert all(map(bench.context.store.was_built_here, ids))
    bench.change(state=bench.context.state.parent / "another")
    assert {one.item.action for one in bench.build()} == {"test"}
    assert not any(map(bench.context.store.was_built_here, ids))


def test_another_image_of_the_same_inputs_is_no_predecessor(bench: Bench) -> None:
    bench.build()
    item = bench.plan()[0]
    stored = bench.engine.stored[item.image_id or ""]
    twin = replace(stored, id="sha256:twin", tags=())
    bench.engine.stored[twin.id] = twin
    bench.context.store.import_results(twin.id, {}, built=True)
    bench.engine.stored[stored.id] = replace(stored, tags=())
    bench.build()
    assert {stored.id, twin.id} <= {*bench.engine.stored}


def test_a_push_sends_the_image_even_where_its_tag_is_at_another(bench: Bench) -> None:
    bench.build()
    mine, other = (item.image_id or "" for item in bench.plan())
    registry = MemoryRegistry()
    reference = f"{registry.name}:one"
    bench.engine.tag(other, reference)
    note = bench.context.state / "note.json"
    Uploader(bench.engine, registry, note, lambda _: None).push(mine, "one")
    assert bench.engine.registry[reference].id == mine


def test_a_wheel_is_for_one_mpi_and_one_python(
    bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the instructions that compile it and the packages are the same."""
    project, mine, later = bench.context.project, images[NEW], images["tf-2.12-cpu-debian"]
    module = "imgbuild.build.horovod_wheels"
    same = render_dockerfile(mine, project.templates), read_lock(project.locks / mine.lock_name)
    monkeypatch.setattr(f"{module}.render_dockerfile", lambda *_: same[0])
    monkeypatch.setattr(f"{module}.read_lock", lambda *_: same[1])
    downloads = dict.fromkeys((NEW, later.name), ImageDownloads({}, {}))
    inputs = replace(bench.context.inputs, downloads=downloads)
    pins = tuple(
        replace(one, sha256="f" * 64) if one.component == "mpi" else one for one in mine.pins
    )
    keys = {wheel_key(one, project, inputs) for one in (mine, later, replace(mine, pins=pins))}
    assert len(keys) == 3


def test_only_an_image_with_its_tags_is_done(bench: Bench) -> None:
    item = bench.plan()[0]
    assert not BuildResult(item, "sha256:x").ok
    assert BuildResult(item, "sha256:x", tagged=True).ok
    assert BuildResult(item, "sha256:x").as_json()["tags"] == []


def test_after_a_failure_nothing_is_fetched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suites of an image that is there fail; the other would have to be built."""
    both = bench.context.images
    bench.change(images=both[:1])
    bench.build(test=False)
    bench.change(images=both)
    bench.faulty = {both[0].name}
    fetched: list[object] = []

    def noted(*what: Any) -> Any:
        fetched.append(what)
        return prepare(*what)

    monkeypatch.setattr(pipeline, "prepare", noted)
    assert bench.states() == {both[0].name: "suites failed"}
    assert fetched == []
    bench.states(keep_going=True)
    assert len(fetched) == 1


def test_locks_are_taken_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of the selection: two builds would wait for each other's image."""
    taken: list[str] = []

    @contextmanager
    def locked(path: Path, _: object) -> Iterator[None]:
        taken.append(path.name)
        yield

    monkeypatch.setattr("imgbuild.build.context.locked", locked)
    for names in ((OLD, NEW), (NEW, OLD)):
        with image_locks(names, None, tmp_path):
            pass
    assert taken[:2] == taken[2:]
