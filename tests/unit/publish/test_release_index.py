"""Images of one release for two platforms: the index with both, and the tags that point to it."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.engine.types import AMD64, ARM64
from imgbuild.matrix.images import Image, for_other_architecture, planned_tags
from imgbuild.matrix.tags import index_tag, push_tag, record_tag
from imgbuild.net.repository import OCI_MANIFEST, DamagedError, Manifest, digest_of
from imgbuild.net.signing import RETIREMENT
from imgbuild.publish.image_push import PushedImage
from imgbuild.publish.inspection import inspect_repository
from imgbuild.publish.life_cycle import delete_tags, find_old, retire, tags_to_delete
from imgbuild.publish.record import Record, put_record, read_published
from imgbuild.publish.release_index import INDEX_TYPE, index_content, read_index
from support.memory_registry import MemoryRegistry
from support.push_bench import PushBench, place_image
from support.signed_push_bench import SignedBench, provenance

NAME = "tf-2.18-cpu-debian"
FIRST, SECOND = "20261120.1", "20261120.2"


class Pair:
    """Pushes of an image for both platforms into one registry, as from two machines."""

    def __init__(self, image: Image, *, signed: bool = False) -> None:
        other = for_other_architecture(image)
        assert other
        kind: Any = SignedBench if signed else PushBench
        self.amd64 = kind(image)
        self.registry: MemoryRegistry = self.amd64.registry
        self.arm64 = kind(other, registry=self.registry)
        if signed:
            self.arm64.signer = self.amd64.signer
        self.tag = planned_tags(image, FIRST).immutable
        self.moving = planned_tags(image).moving
        self.signed = signed

    def push(self, platform: str, content: str, release: str | None = None) -> PushedImage:
        bench = self.amd64 if platform == AMD64 else self.arm64
        # One clock: a later push is later on every machine.
        bench.hour = self.amd64.hour = max(self.amd64.hour, self.arm64.hour)
        push = bench.push_signed if self.signed else bench.push
        pushed: PushedImage = push(f"{content} {platform}", release)
        return pushed

    def push_both(self, content: str = "one", release: str | None = None) -> tuple[str, str]:
        """Push both images; return their digests."""
        first = self.push(AMD64, content, release)
        second = self.push(ARM64, content, release)
        assert first.record.release == second.record.release
        return first.record.digest, second.record.digest

    def unsigned(self) -> "Pair":
        """Return pushes without a signer into the same registry."""
        pair = Pair(self.amd64.image)
        pair.registry = pair.amd64.registry = pair.arm64.registry = self.registry
        return pair

    def members(self, tag: str) -> dict[str, str]:
        manifest = self.registry.manifest(tag)
        assert manifest
        return read_index(manifest)

    def faults(self) -> list[str]:
        published = read_published(self.registry)
        trust = self.amd64.signer if self.signed else None
        matrix = self.amd64.image.matrix
        return [*inspect_repository(self.registry, published, matrix, trust)]


@pytest.fixture
def pair(images: dict[str, Image]) -> Pair:
    return Pair(images[NAME])


@pytest.fixture
def signed(images: dict[str, Image]) -> Pair:
    return Pair(images[NAME], signed=True)


@pytest.mark.parametrize("order", [(AMD64, ARM64), (ARM64, AMD64)])
def test_second_push_makes_the_index(pair: Pair, order: tuple[str, str]) -> None:
    first = pair.push(order[0], "one")
    assert index_tag(pair.tag) not in pair.registry.tagged
    second = pair.push(order[1], "one")
    digests = {first.record.platform: first.record.digest}
    digests[second.record.platform] = second.record.digest
    assert first.record.release == second.record.release == FIRST
    assert pair.members(index_tag(pair.tag)) == digests
    assert "index" in second.steps
    for tag in pair.moving:
        assert pair.members(tag) == digests
        assert pair.registry.tagged[f"{tag}-arm64"] == digests[ARM64]
    assert pair.registry.tagged[pair.tag] == digests[AMD64]
    assert pair.registry.tagged[f"{pair.tag}-arm64"] == digests[ARM64]
    assert pair.faults() == []
    assert pair.push(AMD64, "one").steps == pair.push(ARM64, "one").steps == ()


def test_first_image_of_a_release_leaves_the_older_index(pair: Pair) -> None:
    older = pair.push_both()
    index = pair.registry.tagged[pair.moving[0]]
    pushed = pair.push(AMD64, "two")
    assert pushed.record.release == SECOND
    assert {pair.registry.tagged[tag] for tag in pair.moving} == {index}
    assert all(tag in " ".join(pushed.kept) for tag in pair.moving)
    notes = [*read_published(pair.registry).notes()]
    assert any(pair.moving[0] in note and "platform" in note for note in notes)
    newer = pair.push(ARM64, "two")
    assert newer.record.release == SECOND
    assert pair.members(pair.moving[0]) == {
        AMD64: pushed.record.digest,
        ARM64: newer.record.digest,
    }
    assert pair.members(index_tag(pair.tag)) == dict(zip((AMD64, ARM64), older, strict=True))
    assert pair.faults() == []


def test_unchanged_image_joins_the_newer_release(pair: Pair) -> None:
    """Otherwise a fix for one platform would never reach the moving tags."""
    _, unchanged = pair.push_both()
    fixed = pair.push(AMD64, "two").record
    again = pair.push(ARM64, "one").record
    assert again.release == fixed.release == SECOND
    assert pair.members(pair.moving[0]) == {AMD64: fixed.digest, ARM64: unchanged}
    assert pair.faults() == []


def test_image_of_an_older_release_moves_no_tag_back(pair: Pair) -> None:
    pair.push(AMD64, "one")
    later = pair.push(AMD64, "two").record.digest
    pushed = pair.push(ARM64, "one", FIRST)
    assert pair.members(index_tag(pair.tag))[ARM64] == pushed.record.digest
    assert {pair.registry.tagged[tag] for tag in pair.moving} == {later}
    assert all(tag in " ".join(pushed.kept) for tag in pair.moving)
    pair.push(ARM64, "two")
    assert pair.members(pair.moving[0])[AMD64] == later


def test_both_images_at_once_end_in_one_index(pair: Pair) -> None:
    """Each may read the other's record before it is written, but not both."""
    pair.push(AMD64, "one", FIRST)
    for moment in range(len(pair.registry.calls)):
        again = Pair(pair.amd64.image)
        remaining = moment

        def before(_: str, bench: Pair = again) -> None:
            nonlocal remaining
            if remaining == 0:
                bench.registry.before = lambda _: None
                bench.push(ARM64, "one", FIRST)
            remaining -= 1

        again.registry.before = before
        with suppress(CheckFailedError):  # if a tag was moved in between
            again.push(AMD64, "one", FIRST)
        again.push(AMD64, "one", FIRST)
        members = again.members(index_tag(again.tag))
        assert again.members(again.moving[0]) == again.members(again.moving[1]) == members
        assert again.faults() == []


def test_killed_push_is_completed_by_the_next(pair: Pair) -> None:
    """The older index stays until the new one is whole."""
    calls: list[str] = []
    pair.push_both()
    index = pair.registry.tagged[pair.moving[0]]
    pair.push(AMD64, "two")
    tagged, manifests = dict(pair.registry.tagged), dict(pair.registry.manifests)
    blobs = dict(pair.registry.blobs)
    pair.registry.before = calls.append
    pair.push(ARM64, "two")
    whole = pair.registry.tagged[pair.moving[0]]
    for moment in range(len(calls)):
        pair.registry.tagged, pair.registry.manifests = dict(tagged), dict(manifests)
        pair.registry.blobs = dict(blobs)
        pair.amd64.hour = pair.arm64.hour = 14
        remaining = moment

        def kill(_: str) -> None:
            nonlocal remaining
            if remaining == 0:
                raise KeyboardInterrupt
            remaining -= 1

        pair.registry.before = kill
        with pytest.raises(KeyboardInterrupt):
            pair.push(ARM64, "two")
        pair.registry.before = lambda _: None
        assert {pair.registry.tagged[tag] for tag in pair.moving} <= {index, whole}
        pair.push(ARM64, "two")
        assert {pair.registry.tagged[tag] for tag in pair.moving} == {whole}


def test_images_with_other_versions_are_no_release(pair: Pair) -> None:
    pair.push(AMD64, "one")
    bench = pair.arm64
    candidate = replace(bench.candidate("one"), packages={"numpy": "1.19.5"})
    session = bench.session(FIRST)
    before = dict(pair.registry.tagged)
    with pytest.raises(CheckFailedError, match=r"numpy 1\.19\.5 and 1\.18\.5"):
        session.push(candidate, pytest.fail, pytest.fail)
    assert pair.registry.tagged == before
    # Without --release, it gets a release of its own.
    assert bench.session().plan(candidate).index is None


def test_index_that_lists_other_images_is_never_changed(pair: Pair) -> None:
    pair.push(AMD64, "one")
    foreign = pair.registry.add_manifest(index_tag(pair.tag), {"manifests": []}, INDEX_TYPE)
    with pytest.raises(CheckFailedError, match=r"never changed"):
        pair.push(ARM64, "one", FIRST)
    assert pair.registry.tagged[index_tag(pair.tag)] == foreign.digest
    assert pair.registry.tagged[pair.moving[0]] == pair.registry.tagged[pair.tag]


def test_index_is_signed(signed: Pair) -> None:
    signed.push_both()
    digest = signed.registry.tagged[index_tag(signed.tag)]
    assert digest in signed.amd64.signer.signed
    assert not any(index_tag(signed.tag) in fault for fault in signed.faults())
    signed.amd64.signer.forged.add(digest)
    assert any(index_tag(signed.tag) in fault for fault in signed.faults())
    assert signed.push(AMD64, "one").steps == ("index",)
    assert not any(index_tag(signed.tag) in fault for fault in signed.faults())


def test_signed_index_has_no_unsigned_image(signed: Pair) -> None:
    """Both images can still be signed, one after the other."""
    unsigned = signed.unsigned()
    unsigned.push_both()
    pushed = signed.push(ARM64, "one")
    assert pushed.done[0] == "signed"
    assert any("no trusted signature" in text for text in pushed.kept)
    index = signed.registry.tagged[index_tag(signed.tag)]
    assert index not in signed.amd64.signer.signed
    completed = signed.push(AMD64, "one")
    assert completed.done == ("signed", "indexed")
    assert index in signed.amd64.signer.signed
    assert signed.push(ARM64, "one").steps == ()


def test_unsigned_index_has_no_signed_image(signed: Pair) -> None:
    signed.push(AMD64, "one")
    pushed = signed.unsigned().push(ARM64, "one", FIRST)
    assert any("--sign-key" in text for text in pushed.kept)
    assert index_tag(signed.tag) not in signed.registry.tagged
    assert signed.registry.tagged[signed.moving[0]] == signed.registry.tagged[signed.tag]


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(
            lambda record: replace(record, platform=ARM64 if record.platform == AMD64 else AMD64),
            id="platform",
        ),
        pytest.param(lambda record: replace(record, image="tf-2.2-cpu-debian"), id="image"),
        pytest.param(
            lambda record: replace(record, moving=(*record.moving, "latest")), id="moving"
        ),
        pytest.param(lambda record: replace(record, retired="2026-11-20"), id="retired"),
    ],
)
@pytest.mark.parametrize("first", [AMD64, ARM64])
def test_forged_record_of_the_other_image_makes_no_index(
    signed: Pair, forged: Callable[[Record], Record], first: str
) -> None:
    """Write access to the repository is enough to change a record; no key is needed."""
    record = signed.push(first, "one").record
    put_record(signed.registry, forged(record), signed.registry.manifests[record.digest])
    pushed = signed.push(ARM64 if first == AMD64 else AMD64, "one", FIRST)
    assert any("no index" in text for text in pushed.kept)
    assert not {index_tag(signed.tag), "latest"} & signed.registry.tagged.keys()
    assert signed.amd64.signer.signed.keys() == {record.digest, pushed.record.digest}


def test_signed_retirement_counts_whatever_the_record_says(signed: Pair) -> None:
    record = signed.push(ARM64, "one").record
    signed.amd64.signer.signed[record.digest][RETIREMENT] = b"{}"
    pushed = signed.push(AMD64, "one")
    assert any("retired" in text for text in pushed.kept)
    assert index_tag(signed.tag) not in signed.registry.tagged


def test_retired_image_gets_no_index(pair: Pair) -> None:
    """Neither if it is pushed again itself."""
    record = pair.push(AMD64, "one").record
    retired = replace(record, retired="2026-11-20", retired_reason="a hole")
    pair.amd64.put(retired)
    for platform in (ARM64, AMD64):
        pushed = pair.push(platform, "one", FIRST)
        assert any("retired" in text for text in pushed.kept)
        assert index_tag(pair.tag) not in pair.registry.tagged


def test_index_that_vanishes_during_the_push_is_no_success(pair: Pair) -> None:
    pair.push(AMD64, "one")
    pair.arm64.at("upload", lambda: pair.registry.tagged.pop(pair.tag))
    with pytest.raises(CheckFailedError, match="Run again"):
        pair.push(ARM64, "one", FIRST)


def test_forged_release_of_a_later_day_is_not_joined(signed: Pair) -> None:
    """Anybody who may write to the repository can add its tag and record."""
    record = signed.push(AMD64, "one").record
    release = "20991231.1"
    forged = replace(
        record,
        image=f"{NAME}-arm64",
        platform=ARM64,
        release=release,
        tag=signed.tag.replace(FIRST, release) + "-arm64",
    )
    signed.registry.tagged[forged.tag] = record.digest
    put_record(signed.registry, forged, signed.registry.manifests[record.digest])
    assert signed.push(AMD64, "two").record.release == SECOND


@pytest.mark.parametrize("platform", [AMD64, ARM64])
def test_push_reads_the_repository_few_times(pair: Pair, platform: str) -> None:
    """It has many records, and an image may be pushed for each of two platforms."""
    for number in range(1, 5):
        pair.push_both(f"{number}", f"20261119.{number}")
    if platform == ARM64:
        pair.push(AMD64, "new")
    pair.push(platform, "new")
    calls = pair.registry.calls
    reads = Counter(call for call in calls if call.startswith("manifest ") and "record" in call)
    assert max(reads.values()) <= 6
    assert calls.count("tags") <= 5


@pytest.mark.parametrize("forged", [{"platform": AMD64}, {"image": "tf-2.2-cpu-debian"}])
def test_record_of_another_image_makes_no_index(pair: Pair, forged: dict[str, str]) -> None:
    """Without a signer, nothing but the record says what the other image is."""
    record = pair.push(ARM64, "one").record
    pair.arm64.put(replace(record, **forged))  # type: ignore[arg-type]
    pushed = pair.push(AMD64, "one", FIRST)
    assert any("another image" in text for text in pushed.kept)
    assert index_tag(pair.tag) not in pair.registry.tagged


def test_index_gets_no_moving_tag_that_its_image_may_not_have(signed: Pair) -> None:
    """`verify` would refuse the tag: an older matrix had fewer, and they were signed."""
    record = signed.push(AMD64, "one").record
    fewer = replace(record, moving=record.moving[:1])
    signed.amd64.signer.signed[record.digest] = provenance(
        fewer, signed.registry.manifests[record.digest]
    )
    signed.amd64.put(fewer)
    pushed = signed.push(ARM64, "one", FIRST)
    assert any("no trusted signature" in text for text in pushed.kept)
    assert index_tag(signed.tag) not in signed.registry.tagged


def test_tag_of_an_index_that_somebody_sets_meanwhile_stays(pair: Pair) -> None:
    first = pair.push(AMD64, "one").record.digest

    def before(call: str) -> None:
        if call.startswith("put sha256:"):  # the index, which has no tag yet
            pair.registry.tagged[index_tag(pair.tag)] = first

    pair.registry.before = before
    with pytest.raises(CheckFailedError, match="never changed"):
        pair.push(ARM64, "one", FIRST)
    assert pair.registry.tagged[index_tag(pair.tag)] == first


def test_moving_tag_that_somebody_moves_after_the_push_is_named(pair: Pair) -> None:
    """Also to the image for amd64, which has no image for the other platform."""
    first = pair.push(AMD64, "one").record.digest
    one, last = pair.moving

    def before(call: str) -> None:
        if call == f"put {last}":
            pair.registry.tagged[one] = first

    pair.registry.before = before
    with pytest.raises(CheckFailedError, match=f":{one} was moved"):
        pair.push(ARM64, "one", FIRST)


def test_index_of_an_older_release_moves_no_tag_back(pair: Pair) -> None:
    pair.push(AMD64, "one")
    pair.push_both("two")
    later = pair.registry.tagged[pair.moving[0]]
    pushed = pair.push(ARM64, "three", FIRST)
    assert AMD64 in pair.members(index_tag(pair.tag))
    assert {pair.registry.tagged[tag] for tag in pair.moving} == {later}
    assert all(tag in " ".join(pushed.kept) for tag in pair.moving)


def test_index_of_somebody_else_keeps_no_moving_tag(signed: Pair) -> None:
    """It is not signed, or not the index of a release."""
    signed.push_both()
    index = signed.registry.manifest(index_tag(signed.tag))
    assert index
    document = json.loads(index.content)
    document["manifests"][0]["annotations"] = {"a": "b"}
    signed.registry.add_manifest(signed.moving[0], document, INDEX_TYPE)
    pushed = signed.push(AMD64, "two")
    assert signed.registry.tagged[signed.moving[0]] == pushed.record.digest
    assert signed.registry.tagged[signed.moving[1]] == index.digest
    signed.amd64.signer.forged.add(index.digest)
    signed.push(AMD64, "two")
    assert signed.registry.tagged[signed.moving[1]] == pushed.record.digest


def test_release_that_another_push_has_announced_is_skipped(pair: Pair) -> None:
    """A killed push may have left the tag, and would block this one for ever."""
    pair.push(AMD64, "one")
    announced = push_tag(f"{pair.tag}-arm64", "sha256:another", "machine")
    place_image(pair.registry, "another", announced)
    assert pair.push(ARM64, "one").record.release == SECOND


@pytest.mark.parametrize("platform", [AMD64, ARM64])
def test_deleted_immutable_tag_is_restored(pair: Pair, platform: str) -> None:
    digests = dict(zip((AMD64, ARM64), pair.push_both(), strict=True))
    tag = pair.tag if platform == AMD64 else f"{pair.tag}-arm64"
    del pair.registry.tagged[tag]
    pair.push(platform, "one", FIRST)
    assert pair.registry.tagged[tag] == digests[platform]
    assert pair.faults() == []


def test_versions_that_differ_after_both_were_recorded_block_nothing(pair: Pair) -> None:
    """Two pushes at once read each other's records only after they have written theirs."""
    record = pair.push(AMD64, "one").record
    other = pair.push(ARM64, "one", SECOND).record
    changed = replace(
        record,
        image=other.image,
        tag=f"{pair.tag}-arm64",
        moving=other.moving,
        platform=ARM64,
        packages={"numpy": "1.0"},
    )
    manifest = pair.registry.manifests[other.digest]
    pair.registry.tagged[changed.tag] = other.digest
    put_record(pair.registry, replace(changed, digest=other.digest), manifest)
    again = pair.push(AMD64, "one", FIRST)
    assert any("different versions" in text for text in again.kept)
    assert index_tag(pair.tag) not in pair.registry.tagged


def test_index_that_was_moved_back_is_noted(pair: Pair) -> None:
    """Also if only the image for arm64 differs."""
    pair.push_both()
    older = pair.registry.tagged[pair.moving[0]]
    pair.push(ARM64, "two")
    pair.push(AMD64, "one")
    assert pair.registry.tagged[pair.moving[0]] != older
    assert [*read_published(pair.registry).notes()] == []
    pair.registry.tagged[pair.moving[0]] = older
    (note,) = read_published(pair.registry).notes()
    assert pair.moving[0] in note


def test_image_in_place_of_its_index_is_noted(pair: Pair) -> None:
    first, _ = pair.push_both()
    pair.registry.tagged[pair.moving[0]] = first
    (note,) = read_published(pair.registry).notes()
    assert pair.moving[0] in note
    assert pair.push(AMD64, "one").done == (f"moved {pair.moving[0]}",)


def test_check_finds_an_image_at_the_tag_of_an_index(pair: Pair) -> None:
    first, _ = pair.push_both()
    pair.registry.tagged[index_tag(pair.tag)] = first
    assert any(index_tag(pair.tag) in fault for fault in pair.faults())


def test_check_finds_an_index_without_its_tag(pair: Pair) -> None:
    pair.push_both()
    del pair.registry.tagged[index_tag(pair.tag)]
    assert any("no tag of a release's index" in fault for fault in pair.faults())


def test_index_of_a_killed_push_is_no_fault(signed: Pair) -> None:
    """It is signed before it gets its tag."""
    signed.push_both()
    for tag in (index_tag(signed.tag), *signed.moving):
        signed.registry.tagged[tag] = signed.registry.tagged[signed.tag]
    del signed.registry.tagged[index_tag(signed.tag)]
    assert not any("manifests" in fault for fault in signed.faults())


@pytest.mark.parametrize("member", [AMD64, ARM64])
def test_check_finds_an_index_of_other_images(pair: Pair, member: str) -> None:
    digests = dict(zip((AMD64, ARM64), pair.push_both(), strict=True))
    manifests = {name: pair.registry.manifests[digest] for name, digest in digests.items()}
    manifests[member] = pair.registry.add_image("foreign")
    del pair.registry.tagged["foreign"]
    document = json.loads(index_content(manifests))
    pair.registry.add_manifest(index_tag(pair.tag), document, INDEX_TYPE)
    faults = pair.faults()
    assert any(manifests[member].digest in fault for fault in faults)


def test_check_finds_an_index_at_a_tag_of_an_image(pair: Pair) -> None:
    pair.push_both()
    index = pair.registry.tagged[index_tag(pair.tag)]
    pair.registry.tagged[pair.tag] = index
    assert any(pair.tag in fault for fault in pair.faults())


def test_pruning_deletes_an_index_with_its_images(pair: Pair) -> None:
    for content in ("one", "two", "three"):
        pair.push_both(content)
    held = {pair.registry.tagged[tag] for tag in pair.moving}
    _prune(pair.registry, keep=1)
    left = read_published(pair.registry)
    assert [record.release for record in left.whole] == ["20261120.3"] * 2
    assert {tag for tag in left.tags if tag.endswith("-index")} == {
        index_tag(record.tag) for record in left.whole if record.platform == AMD64
    }
    assert held <= {*pair.registry.manifests}
    assert pair.faults() == []


def test_pruning_keeps_the_images_of_an_index_with_a_moving_tag(pair: Pair) -> None:
    """A newer image for one platform alone makes no older index useless."""
    pair.push_both("one")
    members = {*pair.members(pair.moving[0]).values()}
    pair.push(AMD64, "two")
    pair.push(AMD64, "three")
    pair.push(ARM64, "four", "20261120.9")
    _prune(pair.registry, keep=1)
    assert members <= {*pair.registry.manifests}
    assert {*pair.members(pair.moving[0]).values()} == members
    assert pair.faults() == []


def _prune(registry: MemoryRegistry, keep: int) -> None:
    published = read_published(registry)
    digests = registry.heads(published.tags)
    old = find_old(registry, published, digests, keep)
    going = tags_to_delete(registry, published, digests, old)
    indexes = [tag for tag in going if tag.endswith("-index")]
    images = [tag for tag in going if tag in {record.tag for record in old}]
    # Some registries refuse to delete an image that an index lists.
    order = [*going]
    assert not indexes or max(map(order.index, indexes)) < min(map(order.index, images))
    assert [*delete_tags(registry, going, digests)]


def test_pruning_keeps_the_images_of_an_index_without_a_record(pair: Pair) -> None:
    members = pair.push_both("one")
    del pair.registry.tagged[record_tag(pair.tag)]
    pair.registry.tagged["ours"] = pair.registry.tagged[index_tag(pair.tag)]
    for content in ("two", "three"):
        pair.push_both(content)
    _prune(pair.registry, keep=1)
    assert {*members} <= {*pair.registry.manifests}


def test_pruning_keeps_the_images_of_an_index_that_gets_a_tag_meanwhile(pair: Pair) -> None:
    members = pair.push_both("one")
    older = pair.registry.tagged[pair.moving[0]]
    pair.push_both("two")
    published = read_published(pair.registry)
    digests = pair.registry.heads(published.tags)
    old = find_old(pair.registry, published, digests, 1)
    going = tags_to_delete(pair.registry, published, digests, old)
    assert pair.tag in going
    pair.registry.tagged[pair.moving[0]] = older
    assert [*delete_tags(pair.registry, going, digests)]
    assert {older, *members} <= {*pair.registry.manifests}


def test_image_at_the_tag_of_an_index_does_not_stop_pruning(pair: Pair) -> None:
    for content in ("one", "two"):
        pair.push(AMD64, content)
    pair.registry.tagged[index_tag(pair.tag)] = pair.registry.tagged[pair.tag]
    _prune(pair.registry, keep=1)


def test_index_without_all_records_is_not_retired(pair: Pair) -> None:
    pair.push_both()
    del pair.registry.tagged[record_tag(f"{pair.tag}-arm64")]
    today = pair.amd64.session().now().date()
    with pytest.raises(InputError, match="no record"):
        retire(pair.registry, [pair.moving[0]], "a hole", today)
    assert not any(record.retired for record in read_published(pair.registry).whole)


def test_retiring_an_index_retires_its_images(pair: Pair) -> None:
    pair.push_both()
    today = pair.amd64.session().now().date()
    assert {*retire(pair.registry, [pair.moving[0]], "a hole", today)} == {
        pair.tag,
        f"{pair.tag}-arm64",
    }
    assert {record.retired_reason for record in read_published(pair.registry).whole} == {"a hole"}


def test_moving_tags_of_an_index_belong_to_its_image(pair: Pair) -> None:
    pair.push_both()
    published = read_published(pair.registry)
    moving = {record.platform: published.moving(record) for record in published.whole}
    assert moving[AMD64] == pair.moving
    assert moving[ARM64] == tuple(f"{tag}-arm64" for tag in pair.moving)
    assert record_tag(index_tag(pair.tag)) not in pair.registry.tagged


def _changed(change: Callable[[dict[str, Any]], object]) -> Manifest:
    """Return an index of two images with a change."""
    members = {AMD64: _manifest(b"one"), ARM64: _manifest(b"two")}
    document = json.loads(index_content(members))
    change(document)
    content = json.dumps(document).encode()
    return Manifest(digest_of(content), INDEX_TYPE, content)


def _manifest(content: bytes) -> Manifest:
    return Manifest(digest_of(content), OCI_MANIFEST, content)


def test_index_is_read_as_it_was_written() -> None:
    assert read_index(_changed(lambda _: None)) == {
        AMD64: digest_of(b"one"),
        ARM64: digest_of(b"two"),
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["manifests"].pop(),
        lambda document: document["manifests"].append(document["manifests"][0]),
        lambda document: document.update(annotations={"a": "b"}),
        lambda document: document.update(manifests={}),
        lambda document: document["manifests"][0]["platform"].update(variant="v8"),
        lambda document: document["manifests"][0]["platform"].update(architecture="riscv64"),
        lambda document: document["manifests"][0].update(digest="sha256:1"),
        lambda document: document["manifests"][0].update(annotations={}),
        lambda document: document["manifests"][0].pop("platform"),
        lambda document: document["manifests"].__setitem__(0, "text"),
    ],
)
def test_index_of_another_program_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    """Engines choose by platform, so an entry that they read differently would be run."""
    with pytest.raises(DamagedError):
        read_index(_changed(change))
