"""Of two images whose pushes moved the same tags at once, the later one has all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from test_publish import MOVING, Bench, place_image

from imgbuild.publishing.index import index_of
from imgbuild.publishing.ladder import give_back_tags
from imgbuild.registry.fake import MemoryRegistry

if TYPE_CHECKING:
    from imgbuild.matrix.image import Image
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


def test_what_is_someone_elses_or_gone_stays(
    registry: MemoryRegistry, earlier: Record, later: Record
) -> None:
    other = place_image(registry, "three", "other")
    registry.tagged |= {MOVING[0]: other, MOVING[1]: earlier.digest}
    gone = replace(later, digest=f"sha256:{'0' * 64}")
    assert give_back_tags(registry, index_of([earlier, gone]), [earlier]) == ()
    assert [registry.tagged[tag] for tag in MOVING] == [other, earlier.digest]
