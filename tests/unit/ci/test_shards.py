"""Shards: every image in exactly one, together what shares, none much longer than the others."""

import random

import pytest

from imgbuild.ci.shards import Shard, parse_shard, shards
from imgbuild.ci.work import Work, seconds, work_of
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.project import Project

COUNTS = (1, 2, 3, 4, 8, 16, 34, 100)


@pytest.fixture(scope="module")
def works(images: dict[str, Image], project: Project) -> dict[str, Work]:
    return {
        name: work_of(image, render_dockerfile(image, project.templates))
        for name, image in images.items()
    }


def _longest(groups: list[list[str]], works: dict[str, Work]) -> float:
    return max(seconds(works[name] for name in group) for group in groups)


def _total(groups: list[list[str]], works: dict[str, Work]) -> float:
    return sum(seconds(works[name] for name in group) for group in groups)


def _groups(found: tuple[Shard, ...]) -> list[list[str]]:
    return [[*shard.images] for shard in found]


@pytest.mark.parametrize("count", COUNTS)
def test_each_image_is_in_exactly_one(works: dict[str, Work], count: int) -> None:
    found = shards(works, count)
    assert sorted(name for shard in found for name in shard.images) == sorted(works)
    assert [shard.number for shard in found] == [*range(1, min(count, len(works)) + 1)]
    assert all(shard.images and shard.of == count for shard in found)


@pytest.mark.parametrize("count", COUNTS)
def test_the_same_however_often_and_on_whatever_machine(works: dict[str, Work], count: int) -> None:
    again = {name: Work(dict(reversed([*work.stages.items()]))) for name, work in works.items()}
    assert shards(works, count) == shards(again, count)


@pytest.mark.parametrize("count", [2, 3, 4, 6, 8, 16])
def test_shorter_and_less_work_than_dealing_the_images_out(
    works: dict[str, Work], count: int
) -> None:
    found = _groups(shards(works, count))
    dealt = [[*works][start::count] for start in range(count)]
    assert _longest(found, works) < _longest(dealt, works)
    assert _total(found, works) < _total(dealt, works)


def test_images_that_share_an_expensive_stage_stay_together() -> None:
    works = {
        f"{image}{number}": Work({f"wheel {number}": 100.0, f"suites {image}{number}": 20.0})
        for image in "abc"
        for number in (1, 2, 3)
    }
    assert {frozenset(shard.images) for shard in shards(works, 3)} == {
        frozenset({f"a{n}", f"b{n}", f"c{n}"}) for n in (1, 2, 3)
    }


def test_a_stage_that_all_share_does_not_keep_all_together() -> None:
    works = {name: Work({"os": 50.0, f"suites {name}": 100.0}) for name in "abcdefgh"}
    assert sorted(len(shard.images) for shard in shards(works, 4)) == [2, 2, 2, 2]


def test_work_without_anything_in_common_is_balanced() -> None:
    works = {str(size): Work({str(size): float(size)}) for size in (9, 8, 7, 3, 2, 1)}
    assert sorted(sum(map(int, shard.images)) for shard in shards(works, 3)) == [10, 10, 10]


def test_many_images_without_a_pattern() -> None:
    dice = random.Random(1)  # noqa: S311 - no secret
    works = {
        str(n): Work({str(n): 50.0, **{f"s{dice.randrange(9)}": 20.0 for _ in range(4)}})
        for n in range(90)
    }
    found = shards(works, 7)
    assert sorted(name for shard in found for name in shard.images) == sorted(works)
    assert _longest(_groups(found), works) < 2 * seconds(works.values()) / 7


def test_no_image_is_no_shard() -> None:
    assert shards({}, 4) == ()


def test_order_is_that_of_the_matrix(works: dict[str, Work]) -> None:
    order = [*works]
    for shard in shards(works, 4):
        assert [*shard.images] == sorted(shard.images, key=order.index)


@pytest.mark.parametrize(("text", "pair"), [("1/4", (1, 4)), ("4/4", (4, 4)), ("1/1", (1, 1))])
def test_a_shard_by_number_and_count(text: str, pair: tuple[int, int]) -> None:
    assert parse_shard(text) == pair


@pytest.mark.parametrize(
    "text", ["0/4", "5/4", "x", "", "1", "/4", "1/", "1/0", "-1/4", "1/4/4", "1/1001", "\uff11/4"]
)
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(InputError, match=r"such as 1/4"):
        parse_shard(text)
