"""The index of what was published: of exactly the records that are there, whoever writes it."""

import json
from dataclasses import replace

import pytest
from memory_registry import MemoryRegistry
from published_images import INPUT, RECORD, publish

from imgbuild.errors import MachineError
from imgbuild.matrix.tags import INDEX_TAG
from imgbuild.publishing.artifact import DamagedError, put_artifact
from imgbuild.publishing.index import (
    ARTIFACT_TYPE,
    ROUNDS,
    Change,
    Index,
    changes,
    index_of,
    read_index,
    rebuild_index,
    update_index,
)
from imgbuild.publishing.lookup import find_published
from imgbuild.publishing.tag_check import misplaced_tags
from imgbuild.registry.manifest import OCI_MANIFEST

BRIEF = RECORD.brief
FIRST, SECOND = "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def said() -> list[str]:
    return []


def damage(registry: MemoryRegistry, tag: str, content: bytes = b"[]") -> None:
    """Put something else under a tag."""
    entry = {"mediaType": "x/y", "digest": registry.put_blob(content), "size": len(content)}
    manifest = {"config": entry, "layers": [entry]}
    registry.put_manifest(tag, json.dumps(manifest).encode(), OCI_MANIFEST)


def test_nothing_was_published(registry: MemoryRegistry, said: list[str]) -> None:
    assert read_index(registry) is None
    assert update_index(registry, said.append) == Index()
    assert rebuild_index(registry, said.append) == (Index(), ())
    assert registry.tags() == ()
    assert said == []


def test_the_index_has_every_record(registry: MemoryRegistry, said: list[str]) -> None:
    second = publish(registry, "b", published=SECOND)
    first = publish(registry, "c", published=FIRST)
    assert update_index(registry, said.append) == Index((first, second))
    assert read_index(registry) == Index((first, second))
    third = publish(registry, "a", published=FIRST)
    registry.calls.clear()
    assert update_index(registry, said.append) == Index((third, first, second))
    assert "manifest a.record" in registry.calls
    assert not {"manifest b.record", "manifest c.record"} & {*registry.calls}
    assert said == []


def test_an_index_that_is_behind_a_record(registry: MemoryRegistry, said: list[str]) -> None:
    """Whoever wrote the record again was stopped before the index: the next push must see it."""
    publish(registry, "a")
    index = update_index(registry, said.append)
    new = publish(registry, "a", substitutes=(), report={"pins": {"verdict": "passed"}})
    assert not index.tells(new)
    assert update_index(registry, said.append, ["a"]).tells(new)


def test_an_index_that_is_right_is_not_written(registry: MemoryRegistry, said: list[str]) -> None:
    publish(registry, "a")
    update_index(registry, said.append)
    registry.calls.clear()
    update_index(registry, said.append)
    assert [call for call in registry.calls if call.startswith("put")] == []
    assert registry.calls == [
        "tags",
        "manifest index",
        *(call for call in registry.calls if call.startswith("blob")),
        "tags",
        "head a.record",
    ]
    assert len(registry.calls) == 5


def test_a_record_that_was_written_again_is_noticed_by_anyone(
    registry: MemoryRegistry, said: list[str]
) -> None:
    """Who rolled it back, or ran more suites, was stopped before the index."""
    publish(registry, "a", moving=("2.2",), published=FIRST)
    publish(registry, "b", moving=("2.2",), published=FIRST)
    assert update_index(registry, said.append).holders["2.2"].tag == "b"
    back = publish(registry, "a", moving=("2.2",), published=SECOND)
    assert update_index(registry, said.append).holders["2.2"] == back
    found = read_index(registry)
    assert found
    assert found.holders["2.2"] == back
    assert found.digests == {tag: registry.tagged[f"{tag}.record"] for tag in ("a", "b")}


def test_an_index_of_an_imgbuild_that_kept_no_digests(
    registry: MemoryRegistry, said: list[str]
) -> None:
    """It can be read; nobody knows whether its records are still those that are there."""
    old = publish(registry, "a")
    document = update_index(registry, said.append).as_json()
    del document["digests"]
    put_artifact(registry, INDEX_TAG, ARTIFACT_TYPE, document)
    assert read_index(registry) == Index((old,))
    new = publish(registry, "a", substitutes=())
    assert update_index(registry, said.append) == Index((new,))
    registry.calls.clear()
    update_index(registry, said.append)
    assert "manifest a.record" not in registry.calls


def test_an_index_that_cannot_be_read_is_rebuilt(registry: MemoryRegistry, said: list[str]) -> None:
    """Its blob is gone from the registry, or is too large to be read."""
    record = publish(registry, "a")
    update_index(registry, said.append)
    manifest = registry.manifest(INDEX_TAG)
    assert manifest
    blob = f"blob {manifest.document()['layers'][0]['digest']}"

    def fail(call: str) -> None:
        if call == blob:
            raise MachineError("sent more than it may.")

    registry.before = fail
    index, changed = rebuild_index(registry, said.append)
    assert (index, changed) == (Index((record,)), (Change("added", "a"),))
    assert said == [f"The index {registry.name}:index cannot be read: sent more than it may."]
    registry.before = lambda _: None
    assert read_index(registry) == index


def test_a_record_that_is_gone_is_no_longer_in_it(
    registry: MemoryRegistry, said: list[str]
) -> None:
    publish(registry, "a")
    kept = publish(registry, "b")
    update_index(registry, said.append)
    del registry.tagged["a.record"]
    assert update_index(registry, said.append) == read_index(registry) == Index((kept,))


def test_what_does_not_fit_is_told_and_left_out(registry: MemoryRegistry, said: list[str]) -> None:
    kept = publish(registry, "a")
    publish(registry, "b")
    registry.tagged["b"] = registry.tagged["a"]
    publish(registry, "c")
    del registry.tagged["c"]
    damage(registry, "d.record")
    assert update_index(registry, said.append) == Index((kept,))
    assert len(said) == 3
    told = " ".join(sorted(said))
    assert "Left out of the index: registry.test/team/app:b is sha256:" in told
    assert "app:c is not there" in told
    assert "app:d.record is of the type None" in told


@pytest.mark.parametrize("content", [b"[]", b"no JSON", b"{}"])
def test_a_damaged_index(registry: MemoryRegistry, said: list[str], content: bytes) -> None:
    record = publish(registry, "a")
    damage(registry, INDEX_TAG, content)
    remedy = "imgbuild published --from registry.test/team/app --rebuild"
    with pytest.raises(DamagedError, match=f"index is damaged: .*{remedy}"):
        read_index(registry)
    assert update_index(registry, said.append) == read_index(registry) == Index((record,))
    assert "is damaged" in said[0]


def test_an_index_of_a_later_imgbuild(registry: MemoryRegistry, said: list[str]) -> None:
    publish(registry, "a")
    update_index(registry, said.append)
    manifest = registry.manifest(INDEX_TAG)
    assert manifest
    digest = manifest.document()["layers"][0]["digest"]
    registry.blobs[digest] = b'{"schema": 2, "records": []}'
    with pytest.raises(DamagedError, match="of schema 2; this imgbuild reads 1"):
        read_index(registry)


def test_rebuilding_believes_no_index(registry: MemoryRegistry, said: list[str]) -> None:
    right = publish(registry, "a", moving=())
    stale = replace(right, size=1)
    gone = replace(right, tag="gone")
    other = MemoryRegistry()
    publish(other, "a", moving=(), size=1)
    publish(other, "gone", moving=())
    update_index(other, said.append)
    registry.manifests |= other.manifests
    registry.blobs |= other.blobs
    registry.tagged[INDEX_TAG] = other.tagged[INDEX_TAG]
    new = publish(registry, "b", moving=(), published=SECOND)
    before = read_index(registry)
    assert before
    assert {record.tag for record in before.records} == {stale.tag, gone.tag}
    index, changed = rebuild_index(registry, said.append)
    assert index == read_index(registry) == Index((right, new))
    assert changed == (Change("changed", "a"), Change("added", "b"), Change("removed", "gone"))
    assert rebuild_index(registry, said.append) == (index, ())


def test_an_index_without_any_record_left(registry: MemoryRegistry, said: list[str]) -> None:
    publish(registry, "a")
    update_index(registry, said.append)
    del registry.tagged["a.record"]
    assert rebuild_index(registry, said.append) == (Index(), (Change("removed", "a"),))
    assert read_index(registry) == Index()


def test_moving_tags_are_those_of_the_last_image() -> None:
    old = replace(BRIEF, tag="old", moving=("2.2", "2.2.0"), published=FIRST)
    new = replace(BRIEF, tag="new", moving=("2.2", "2.2.1"), published=SECOND)
    index = index_of([new, old])
    assert index.records == (old, new)
    assert index.moving(old) == ("2.2.0",)
    assert index.moving(new) == ("2.2", "2.2.1")
    assert index.as_json()["moving"] == {"2.2": "new", "2.2.0": "old", "2.2.1": "new"}


def test_of_one_moment_the_later_release_is_the_last() -> None:
    ninth = replace(BRIEF, tag="x-9", release="20261120.9")
    tenth = replace(BRIEF, tag="x-10", release="20261120.10")
    assert index_of([tenth, ninth]).records == (ninth, tenth)


def test_looking_up_by_what_went_in() -> None:
    old = replace(BRIEF, tag="old", published=FIRST)
    new = replace(BRIEF, tag="new", published=SECOND)
    other = replace(BRIEF, tag="other", image="tf-2.3-cpu-debian", published=SECOND)
    index = index_of([new, old, other])
    assert find_published(index, RECORD.image, INPUT) == new
    assert find_published(index, RECORD.image, "sha256:" + "4" * 64) is None
    assert find_published(index, "tf-1.10-cpu-debian", INPUT) is None
    assert find_published(Index(), RECORD.image, INPUT) is None


def test_differences() -> None:
    one, two = replace(BRIEF, tag="one"), replace(BRIEF, tag="two")
    assert changes(Index((one,)), Index((two,))) == (
        Change("removed", "one"),
        Change("added", "two"),
    )
    assert changes(Index((one,)), Index((replace(one, size=0),))) == (Change("changed", "one"),)


def test_tags_that_point_elsewhere(registry: MemoryRegistry, said: list[str]) -> None:
    publish(registry, "old", moving=("2.2", "2.2.0"), published=FIRST)
    new = publish(registry, "new", moving=("2.2",), published=SECOND)
    index = update_index(registry, said.append)
    assert misplaced_tags(registry, index) == ()
    other = registry.add_image("other").digest
    registry.tagged["2.2"] = other
    del registry.tagged["old"]
    name = registry.name
    assert sorted(misplaced_tags(registry, index)) == [
        f"{name}:2.2 is {other}, the index says {new.digest}.",
        f"{name}:old is not there, the index says {index.records[0].digest}.",
    ]


def test_others_who_publish_without_end(said: list[str]) -> None:
    busy = MemoryRegistry()

    def another(call: str) -> None:
        if call == f"put {INDEX_TAG}":
            busy.before = lambda _call: None
            publish(busy, f"other-{len(busy.tagged)}", moving=())
            busy.before = another

    publish(busy, "a", moving=())
    busy.before = another
    with pytest.raises(MachineError, match=f"changed by others {ROUNDS} times"):
        update_index(busy, said.append)
