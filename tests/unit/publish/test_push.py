"""Pushing images: the order, what is done again, other pushes at the same time.

What is cut off or does not arrive is tried with a real registry, in tests/e2e/test_push_faults.py;
a plan in tests/e2e/test_push.py.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError
from imgbuild.matrix.images import Image
from support.memory_registry import configuration_bytes
from support.published_images import publish
from support.push_bench import (
    FIRST,
    MOVING,
    NAME,
    PACKAGES,
    REPORT,
    SECOND,
    STEM,
    PushBench,
    id_of,
    input_of,
    place_image,
)
from support.suite_results import changed


@pytest.fixture
def bench(images: dict[str, Image]) -> PushBench:
    return PushBench(images[NAME])


def test_content_then_record_then_input_tag_then_moving_tags(bench: PushBench) -> None:
    found = bench.push()
    assert found.steps == ("push", "attach", "record", *(f"move {tag}" for tag in MOVING))
    assert found.done == ("pushed", "attached", "recorded", *(f"moved {tag}" for tag in MOVING))
    writes, digest = bench.writes(), found.record.digest
    stem = digest.replace(":", "-")
    attached = [f"put {stem}.sbom", f"put {stem}", f"put {stem}.provenance", f"put {stem}"]
    artifact = bench.registry.read_artifact(f"{stem}.provenance", "application/vnd.in-toto+json")
    assert artifact
    (subject,) = artifact[0]["subject"]
    assert (subject["digest"], artifact[1]) == ({"sha256": digest[7:]}, digest)
    rest = [f"put {input_of('one')}", *(f"put {tag}" for tag in MOVING)]
    assert writes == ["upload", f"put {FIRST}", *attached, f"put {FIRST}.record", *rest]
    assert bench.digests(FIRST, input_of("one"), *MOVING) == {digest}
    assert found.record == bench.record()
    assert found.record.packages == PACKAGES
    assert found.record.snapshots == {"debian": "20261101T000000Z"}
    assert (found.record.image_id, found.record.release) == (id_of("one"), "20261120.1")
    assert found.record.size == len(configuration_bytes("one") + b"layer")
    assert found.record.build_seconds > 0
    assert [result.verdict for result in found.record.report.values()] == ["passed"]


def test_what_is_there_is_only_read(bench: PushBench) -> None:
    """By its id in a graph driver or in containerd: the second engine may be another."""
    record = bench.push().record
    for image_id in ("", record.digest):
        found = bench.push(image_id=image_id)
        assert (found.steps, found.kept, found.record) == ((), (), record)
        assert bench.writes() == []


def test_push_gives_another_image_the_next_release(bench: PushBench) -> None:
    first = bench.push("one").record
    later = bench.push("two").record
    assert (later.tag, bench.digests(FIRST)) == (SECOND, {first.digest})
    found = bench.push("one")
    assert found.steps == ()
    assert found.kept == tuple(f"{tag} stays at {SECOND}" for tag in MOVING)
    assert bench.digests(*MOVING) == {later.digest}
    del bench.registry.tagged[MOVING[0]]
    found = bench.push("one")
    assert (found.moves, found.kept) == (MOVING[:1], (f"{MOVING[1]} stays at {SECOND}",))
    bench.registry.tagged |= dict.fromkeys(MOVING, first.digest)
    assert bench.push("two").moves == MOVING, "moved back, they come to the later image again"


def test_a_moving_tag_that_another_image_took_is_taken_back(bench: PushBench) -> None:
    """Only a later one of the same image keeps it."""
    record = bench.push().record
    taken = {"image": "tf-2.2-cpu-other", "moving": MOVING}
    publish(bench.registry, "other", **taken, published="2026-12-01T00:00:00Z")
    found = bench.push()
    assert (found.moves, found.kept) == (MOVING, ())
    assert bench.digests(*MOVING) == {record.digest}


def test_an_immutable_tag_is_never_overwritten(bench: PushBench) -> None:
    """Nor does who removes it make room for another image: its record keeps it."""
    other = bench.push("other", release="20261120.1").record.digest
    for removed in (False, True):
        if removed:
            del bench.registry.tagged[FIRST]
        before = dict(bench.registry.tagged)
        with pytest.raises(CheckFailedError) as caught:
            bench.push("one", release="20261120.1")
        for fact in (FIRST, other, id_of("other"), id_of("one"), "--release"):
            assert fact in str(caught.value)
        assert (bench.registry.tagged, bench.writes()) == (before, [])


def test_push_repairs_a_record_and_keeps_its_facts(
    bench: PushBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, Any] = {"retired": "2026-01-01", "system": {"openssl": "3.0.1"}}
    old = replace(bench.push().record, published="2025-01-01T00:00:00Z", **facts)
    bench.put(old)
    del bench.registry.tagged[input_of("one")]
    found = bench.push()
    assert (found.steps, found.record) == (("record",), old)
    assert bench.writes() == [f"put {input_of('one')}"]
    monkeypatch.setitem(
        REPORT, "pins", changed(REPORT["pins"], passed=4)
    )  # the suite has another check
    assert bench.push().steps == ("record",)
    assert (bench.record().report["pins"].passed, bench.record().retired) == (4, "2026-01-01")
    bench.registry.tagged[f"{FIRST}.record"] = bench.registry.tagged[FIRST]
    assert bench.push().steps == ("record",)
    assert bench.record().tag == FIRST


def test_the_same_image_may_have_another_release(bench: PushBench) -> None:
    bench.push()
    found = bench.push(release="20261120.7").record
    assert found.tag == f"{STEM}-20261120.7"
    assert bench.digests(FIRST, MOVING[0]) == {found.digest}


def test_push_reports_a_tag_that_another_push_moved(bench: PushBench) -> None:
    bench.at(f"put {FIRST}.record", lambda: place_image(bench.registry, "rival", MOVING[0]))
    with pytest.raises(CheckFailedError, match=MOVING[0]) as caught:
        bench.push()
    (digest,) = bench.digests(MOVING[0])
    assert bench.registry.manifests[digest].config_digest == id_of("rival")
    assert digest in str(caught.value)
    bench.push()
    bench.at(f"put {SECOND}.record", lambda: bench.registry.tagged.pop(MOVING[0]))
    with pytest.raises(CheckFailedError, match=MOVING[0]):
        bench.push("two")


@pytest.mark.parametrize("tag", [input_of("one"), *MOVING], ids=["input", "minor", "release"])
def test_a_tag_that_is_moved_afterwards_is_reported(bench: PushBench, tag: str) -> None:
    written = f"put {MOVING[-1]}"

    def rival() -> None:
        bench.at(f"head {FIRST}", lambda: place_image(bench.registry, "rival", tag))

    bench.at(written, rival)
    with pytest.raises(CheckFailedError, match=tag):
        bench.push()


@pytest.mark.parametrize("recorded", [False, True])
def test_two_images_under_one_immutable_tag(bench: PushBench, recorded: bool) -> None:
    """Who finds another image there gives way; the record decides if there is one."""

    def rival() -> None:
        digest = place_image(bench.registry, "rival", FIRST)
        if recorded:
            mine = PushBench(bench.image).push().record
            bench.put(replace(mine, digest=digest, image_id=id_of("rival")))
            place_image(bench.registry, "one", FIRST)

    bench.at("upload", rival)
    with pytest.raises(CheckFailedError, match=FIRST):
        bench.push()
    (digest,) = bench.digests(FIRST)
    there = "one" if recorded else "rival"
    assert bench.registry.manifests[digest].config_digest == id_of(there)
    assert not {*MOVING} & {*bench.registry.tagged}


def test_push_reports_a_record_that_changed(bench: PushBench) -> None:
    """Nothing is signed, so nothing says which of the two is right."""
    rivals: list[str] = []

    def rival() -> None:
        rivals.append(place_image(bench.registry, "rival", "any"))
        bench.put(replace(bench.record(), digest=rivals[0], image_id=id_of("rival")))

    bench.at(f"put {MOVING[1]}", rival)
    with pytest.raises(CheckFailedError, match=FIRST) as caught:
        bench.push()
    (mine,) = bench.digests(FIRST)
    assert mine in str(caught.value)
    assert rivals[0] in str(caught.value)
    assert bench.registry.manifests[mine].config_digest == id_of("one")


def test_two_pushes_of_one_image_at_once_are_no_conflict(bench: PushBench) -> None:
    def later() -> None:
        bench.put(replace(bench.record(), published="2026-11-21T00:00:00Z"))

    bench.at(f"put {input_of('one')}", later)
    assert bench.push().steps[0] == "push"


@pytest.mark.parametrize("days", [-1, 365])
def test_push_with_a_wrong_clock_moves_no_tags(bench: PushBench, days: int) -> None:
    """Back by a day it refuses; forward by a year it is the others that do, until it is named."""
    right = datetime(2026, 11, 20, 12, tzinfo=UTC)
    first, second = sorted((right, right + timedelta(days=days)), reverse=True)
    one = bench.push("one", now=first).record
    with pytest.raises(CheckFailedError, match="clock"):
        bench.push("two", now=second)
    assert bench.digests(*MOVING) == {one.digest}
    assert bench.push("one", now=second).steps == (), "what is there is known by its id"
    assert bench.push("two", f"{first:%Y%m%d}.2", now=second).moves == MOVING
