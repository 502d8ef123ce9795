"""Of two images whose pushes moved the same tags at once, the later one has all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from memory_registry import MemoryRegistry
from test_publish import MOVING, Bench, place_image

from imgbuild.build.display import BuildDisplay
from imgbuild.publishing.index import Index, index_of
from imgbuild.publishing.ladder import astray, give_back_tags, settled
from imgbuild.publishing.record import put_record
from imgbuild.publishing.session import Session, Wish
from imgbuild.retry import RetryPolicy

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image
    from imgbuild.publishing.record import Record

NAME = "tf-2.2-cpu-debian"


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def earlier(images: dict[str, Image], registry: MemoryRegistry) -> Record:
    bench = Bench(images[NAME], registry)
    return bench.like(place_image(registry, "one", "2.2.0-20261120.1"))


@pytest.fixture
def later(earlier: Record, registry: MemoryRegistry) -> Record:
    tag = "2.2.0-20261120.2"
    digest = place_image(registry, "two", tag)
    return replace(
        earlier, tag=tag, release="20261120.2", digest=digest, published="2026-11-20T00:00:01Z"
    )


def test_a_tag_of_a_later_image_is_given_back(
    registry: MemoryRegistry, earlier: Record, later: Record
) -> None:
    first, second = MOVING
    registry.tagged |= {first: later.digest, second: earlier.digest}
    index = index_of([earlier, later])
    assert give_back_tags(registry, index, [earlier]) == (second,)
    assert {registry.tagged[tag] for tag in MOVING} == {later.digest}
    assert give_back_tags(registry, index, [earlier, later]) == ()


def test_a_later_image_keeps_its_tags(
    registry: MemoryRegistry, earlier: Record, later: Record
) -> None:
    registry.tagged |= dict.fromkeys(MOVING, later.digest)
    assert give_back_tags(registry, index_of([earlier, later]), [later]) == ()
    assert {registry.tagged[tag] for tag in MOVING} == {later.digest}


def test_the_tags_of_an_image_whose_record_was_replaced_are_handed_over(
    registry: MemoryRegistry, earlier: Record
) -> None:
    """Two images under one immutable tag at once: that one counts whose record is there."""
    other = replace(earlier, digest=place_image(registry, "two", earlier.tag))
    registry.tagged |= dict.fromkeys(MOVING, earlier.digest)
    index = index_of([other])
    assert give_back_tags(registry, index, [earlier]) == MOVING
    assert {registry.tagged[tag] for tag in MOVING} == {other.digest}
    told = astray(registry, index, [earlier])
    assert "published by someone else at the same time" in told[NAME]
    assert astray(registry, index, [other]) == {}


def test_tags_that_were_moved_by_someone_else_are_told_and_left(
    registry: MemoryRegistry, earlier: Record, later: Record
) -> None:
    index = index_of([earlier, later])
    registry.tagged |= dict.fromkeys(MOVING, later.digest)
    assert astray(registry, index, [earlier, later]) == {}
    other = place_image(registry, "three", MOVING[0])
    del registry.tagged[MOVING[1]]
    told = astray(registry, index, [later])[NAME]
    first, second = told.splitlines()
    assert f":{MOVING[0]} was moved by someone else while this push ran, to {other}." in first
    assert f"Run again to move it to {later.digest} ({later.tag})." in first
    assert f":{MOVING[1]} was moved by someone else while this push ran, to nothing." in second
    assert registry.tagged[MOVING[0]] == other


@pytest.mark.parametrize("moment", [f"put {MOVING[1]}", "put index", None])
def test_a_push_fails_if_someone_moves_a_tag_after_it(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch, moment: str | None
) -> None:
    bench, moved = Bench(images[NAME]), list[str]()

    def move(call: str) -> None:
        if call == moment and not moved:
            moved.append(place_image(bench.registry, "other", MOVING[0]))

    bench.registry.before = move
    monkeypatch.setattr(Session, "_publish", lambda *_: bench.push())
    names = Path("names")
    display = BuildDisplay([NAME])
    session = Session(
        bench.registry,
        Index(),
        (bench.approved(),),
        RetryPolicy(),
        names,
        None,
        Wish(()),
        display,
        print,
    )
    family = session.run()
    assert bool(moved) == bool(moment) == bool(family.errors) == (not family.published)
    if moment:
        assert f"moved by someone else while this push ran, to {moved[0]}" in str(
            family.errors[NAME]
        )
        assert bench.registry.tagged[MOVING[0]] == moved[0]


def test_a_tag_of_an_image_that_was_published_since_is_right(
    registry: MemoryRegistry, earlier: Record, later: Record
) -> None:
    """The index was written just before their record came."""
    put_record(registry, earlier)
    put_record(registry, later)
    registry.tagged |= {earlier.tag: earlier.digest, **dict.fromkeys(MOVING, later.digest)}
    said: list[str] = []
    old = index_of([earlier])
    assert NAME in astray(registry, old, [earlier])
    assert settled(registry, old, [earlier], said.append, roll_back=False) == {}
    assert said == []


@pytest.mark.parametrize("roll_back", [False, True])
def test_whoever_rolls_back_gives_nothing_back(
    registry: MemoryRegistry, earlier: Record, later: Record, *, roll_back: bool
) -> None:
    registry.tagged |= dict.fromkeys(MOVING, earlier.digest)
    said: list[str] = []
    index = index_of([earlier, later])
    assert settled(registry, index, [earlier], said.append, roll_back=roll_back) == {}
    kept = earlier if roll_back else later
    assert {registry.tagged[tag] for tag in MOVING} == {kept.digest}
    assert len(said) == (0 if roll_back else len(MOVING))


def test_what_is_someone_elses_or_gone_stays(
    registry: MemoryRegistry, earlier: Record, later: Record
) -> None:
    other = place_image(registry, "three", "other")
    registry.tagged |= {MOVING[0]: other, MOVING[1]: earlier.digest}
    gone = replace(later, digest=f"sha256:{'0' * 64}")
    assert give_back_tags(registry, index_of([earlier, gone]), [earlier]) == ()
    assert [registry.tagged[tag] for tag in MOVING] == [other, earlier.digest]
