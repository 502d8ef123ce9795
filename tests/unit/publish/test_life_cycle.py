"""Retiring and deleting what is published: nothing that stays loses anything."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

import pytest

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.project import Project
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import input_tag, record_tag
from imgbuild.net.repository import OCI_MANIFEST
from imgbuild.net.signing import RETIREMENT, Signer, Trust
from imgbuild.publish.life_cycle import delete_tags, find_old, retire, tags_to_delete
from imgbuild.publish.record import END_OF_LIFE, Record, read_published
from support.memory_registry import MemoryRegistry
from support.published_images import publish
from support.verification_bench import NAME, OTHER, VerificationBench, before_issue

DAY = date(2026, 11, 25)
#: The tag of a wheel that an earlier version stored.
WHEEL = f"wheel-{'a' * 64}"


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def verdicts_tag(record: Record) -> str:
    """Return a tag as that of suite results which an earlier version stored."""
    return f"verdicts-{record.input_digest[-32:]}"


def release(registry: MemoryRegistry, number: int, image: str = "tf-2.2-cpu-debian") -> Record:
    """Publish one release of an image, with all that a push puts beside it, and a signature.

    Earlier versions also put the results of its suites there.
    """
    name = f"sha256:{image.encode().hex()[:40]:0>60}{number:04}"
    record = publish(
        registry,
        f"{image}-20261120.{number}",
        image=image,
        release=f"20261120.{number}",
        moving=(f"{image}-latest",),
        input_digest=name,
        published=f"2026-11-20T10:{number:02}:00Z",
    )
    registry.tagged[input_tag(name)] = record.digest
    manifest = registry.manifest(record.digest)
    registry.put_artifact(verdicts_tag(record), "application/vnd.test", b"{}", manifest)
    signed = record.digest.replace(":", "-")
    for tag in (signed, f"{signed}.sig", f"{signed}.att"):
        registry.add_manifest(tag, {"annotations": {"of": tag}}, OCI_MANIFEST)
    return record


class Pruning:
    """The steps of `imgbuild release prune`, which chooses first and deletes later."""

    def __init__(self, registry: MemoryRegistry, keep: int) -> None:
        published = read_published(registry)
        self.registry, self.digests = registry, registry.heads(published.tags)
        self.old = find_old(self.registry, published, self.digests, keep)
        self.tags = tags_to_delete(registry, published, self.digests, self.old)

    def run(self) -> Iterator[str]:
        return delete_tags(self.registry, self.tags, self.digests)


def test_pruning_keeps_latest_releases_and_moving_tags(
    registry: MemoryRegistry,
) -> None:
    records = [release(registry, number) for number in range(1, 6)]
    release(registry, 1, "tf-2.3-cpu-debian")
    registry.tagged["ours-for-ever"] = records[0].digest  # somebody's own
    before = dict(registry.tagged)
    pruning = Pruning(registry, 2)
    assert [one.release for one in pruning.old] == ["20261120.2", "20261120.3"]
    assert registry.tagged == before, "nothing is deleted by looking"
    deleted = [*pruning.run()]
    gone = {before[tag] for tag in deleted}
    assert registry.tagged == {tag: one for tag, one in before.items() if one not in gone}
    stay = {one.digest.replace(":", "-") for one in (records[0], *records[3:])}
    signatures = {tag.partition(".")[0] for tag in registry.tagged if tag.startswith("sha256-")}
    assert stay < signatures
    assert len(signatures) == 4
    found = read_published(registry)
    assert [*found.faults()] == []
    assert len(found.whole) == 4
    assert not Pruning(registry, 2).tags


def test_a_deletion_that_was_cut_off_is_completed(registry: MemoryRegistry) -> None:
    for number in range(1, 4):
        release(registry, number)
    total = len(Pruning(registry, 1).tags)
    running = Pruning(registry, 1).run()
    for _ in range(5):
        next(running)
    left = Pruning(registry, 1)
    assert 0 < len(left.tags) < total
    [*left.run()]
    assert [one.release for one in read_published(registry).records] == ["20261120.3"]


def test_a_tag_that_moves_to_an_old_image_meanwhile_keeps_it(registry: MemoryRegistry) -> None:
    old, _ = release(registry, 1), release(registry, 2)
    pruning = Pruning(registry, 1)
    registry.tagged["2.2-cpu"] = old.digest
    [*pruning.run()]
    assert registry.tagged["2.2-cpu"] == registry.tagged[old.tag] == old.digest


def test_tags_that_no_release_needs_go(registry: MemoryRegistry) -> None:
    """Earlier versions kept wheels, results and unpublished images in repositories."""
    kept = release(registry, 1)
    before = dict(registry.tagged)
    image = registry.add_image("x")
    unneeded = {f"input-{'b' * 64}", f"verdicts-{'c' * 32}", f"push-{'d' * 24}-{'e' * 24}", WHEEL}
    registry.tagged |= dict.fromkeys(unneeded, image.digest)
    registry.put_artifact(f"verdicts-{'c' * 32}", "application/vnd.test", b"{}", image)
    registry.put_artifact(WHEEL, "application/vnd.test", b"a wheel")
    del registry.tagged["x"]
    assert {*Pruning(registry, 1).tags} == unneeded
    assert {*Pruning(registry, 1).run()} <= unneeded
    assert registry.tagged == before
    assert verdicts_tag(kept) in before
    assert registry.head(input_tag(kept.input_digest)) == kept.digest
    assert Pruning(registry, 1).tags == {}


def test_tags_of_somebody_else_stay(registry: MemoryRegistry) -> None:
    """Those that only begin as ours, and ours that are at the same image as theirs."""
    release(registry, 1)
    for tag in ("input-data", "wheel-of-fortune", "verdicts-1", "push-1", "mine"):
        registry.add_image(tag)
    registry.tagged[f"input-{'b' * 64}"] = registry.tagged["mine"]
    registry.put_artifact(
        f"verdicts-{'c' * 32}",
        "application/vnd.test",
        b"{}",
        registry.manifest(registry.tagged["mine"]),
    )
    before = dict(registry.tagged)
    assert Pruning(registry, 1).tags == {}
    assert [*Pruning(registry, 1).run()] == []
    assert registry.tagged == before


def test_a_retired_image_says_so_and_stays(registry: MemoryRegistry) -> None:
    times = ("2026-11-20T10:00:00Z", "2026-11-21T10:00:00Z")
    old, latest = (publish(registry, f"1-{time[:10]}", published=time) for time in times)
    with pytest.raises(InputError, match="nosuch"):
        retire(registry, [old.tag, "nosuch"], "a hole", DAY)
    assert read_published(registry).records == (old, latest)
    assert retire(registry, [old.tag], "a hole", DAY) == [old.tag]
    retired = replace(old, retired="2026-11-25", retired_reason="a hole")
    assert read_published(registry).whole == (retired, latest)
    artifact = registry.manifest(record_tag(old.tag))
    assert artifact
    assert artifact.document()["annotations"] == {END_OF_LIFE: "2026-11-25"}


@pytest.fixture
def bench(project: Project, images: dict[str, Image]) -> VerificationBench:
    return VerificationBench(project, images)


def retired_of(bench: VerificationBench, record: Record) -> list[object]:
    reference = bench.reference(record.digest)
    kinds = bench.cosign.statements
    return [
        one["predicate"]
        for _, where, one in kinds
        if where == reference and RETIREMENT in one.values()
    ]


def test_retirement_of_a_signed_image_is_signed(bench: VerificationBench) -> None:
    record, other = bench.publish(), bench.publish(OTHER)
    before = dict(bench.registry.tagged)
    for end in (".sig", ".att"):  # one of them is enough
        with pytest.raises(InputError, match="--sign-key"):
            retire(bench.registry, [record.tag], "a hole", DAY)
        del bench.registry.tagged[f"{record.digest.replace(':', '-')}{end}"]
    bench.registry.tagged = before
    assert read_published(bench.registry).whole == tuple(
        sorted([record, other], key=lambda r: r.age)
    )
    signer = Signer(bench.cosign, "own")
    assert retire(bench.registry, [record.moving[0]], "a hole", DAY, signer=signer) == [record.tag]
    assert retired_of(bench, record) == [{"retired": "2026-11-25", "reason": "a hole"}]
    assert retired_of(bench, other) == []
    found = {one.image: one.retired for one in read_published(bench.registry).whole}
    assert found == {NAME: "2026-11-25", OTHER: ""}


def test_retirement_of_another_image_is_not_signed(bench: VerificationBench) -> None:
    """By a rewritten record, and of an image that somebody else signed."""
    record, other = bench.publish(), bench.publish(OTHER)
    bench.put(replace(other, moving=("2.2-cpu",), image=NAME))
    bench.registry.tagged["2.2-cpu"] = other.digest
    signer = Signer(bench.cosign, "own")
    with pytest.raises(CheckFailedError, match=OTHER.split("-")[1]):
        retire(bench.registry, ["2.2-cpu"], "a hole", DAY, signer=signer)
    with pytest.raises(CheckFailedError):
        retire(bench.registry, [record.tag], "a hole", DAY, signer=Signer(bench.cosign, "other"))
    keyless, trust = Signer(bench.cosign), Trust(bench.cosign, "public other")
    with pytest.raises(CheckFailedError):
        retire(bench.registry, [record.tag], "a hole", DAY, signer=keyless, trust=trust)
    assert retired_of(bench, record) == retired_of(bench, other) == []
    assert {one.retired for one in read_published(bench.registry).whole} == {""}


def test_image_signed_before_releases_is_retired(bench: VerificationBench) -> None:
    record = bench.publish(change=before_issue)
    retire(bench.registry, [record.tag], "a hole", DAY, signer=Signer(bench.cosign, "own"))
    assert len(retired_of(bench, record)) == 1


def test_retirement_that_would_not_be_signed(bench: VerificationBench) -> None:
    """Who signs must learn that the signature was deleted: it may come back without this."""
    record, other = bench.publish(), bench.publish(OTHER)
    for end in (".sig", ".att"):
        del bench.registry.tagged[f"{record.digest.replace(':', '-')}{end}"]
    for tags in ([record.tag], [other.tag, record.tag]):
        with pytest.raises(InputError, match="deleted"):
            retire(bench.registry, tags, "a hole", DAY, signer=Signer(bench.cosign, "own"))
    assert {one.retired for one in read_published(bench.registry).whole} == {""}
    retire(bench.registry, [record.tag], "a hole", DAY)
    assert retired_of(bench, record) == retired_of(bench, other) == []


def test_retirement_without_trust_is_not_signed(bench: VerificationBench) -> None:
    """A record names the digest, and whoever may write can change a record."""
    record = bench.publish()
    with pytest.raises(InputError, match="verify"):
        retire(bench.registry, [record.tag], "a hole", DAY, signer=Signer(bench.cosign))
    assert retired_of(bench, record) == []
    assert {one.retired for one in read_published(bench.registry).whole} == {""}
