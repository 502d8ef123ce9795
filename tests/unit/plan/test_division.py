"""Dividing images: each once, shared stages together, close to the best that is possible."""

import random
from dataclasses import replace
from itertools import product

import pytest
from conftest import ROOT

from imgbuild.matrix.images import Image
from imgbuild.plan.division import Work, divide, estimated_works, lower_bound, seconds_of
from imgbuild.project import Project


def _works(seed: int, count: int, groups: int) -> list[Work]:
    chance = random.Random(seed)  # noqa: S311 - the same works each time
    return [
        Work(f"image-{i}", chance.uniform(30, 300), {f"stage-{chance.randrange(groups)}": 25.0})
        for i in range(count)
    ]


def _longest(parts: list[list[Work]]) -> float:
    return max(map(seconds_of, parts))


@pytest.mark.parametrize("runners", [1, 2, 7, 60])
def test_each_image_is_built_once_and_the_order_does_not_matter(runners: int) -> None:
    works = _works(1, 50, 20)
    parts = divide(works, runners)
    assert len(parts) == runners
    assert sorted(work.name for part in parts for work in part) == sorted(w.name for w in works)
    assert divide(works[::-1], runners) == parts
    assert lower_bound(works, runners) <= _longest(parts)


def test_what_shares_stages_stays_together_if_that_costs_no_time() -> None:
    works = [Work(f"{group}-{i}", 100, {group: 80}) for group in "abcd" for i in range(3)]
    parts = divide(works, 4)
    assert [len({work.name[0] for work in part}) for part in parts] == [1, 1, 1, 1]
    assert _longest(parts) == 140
    # One group is no reason to leave the other runners idle: it is cut.
    one = [replace(work, shared={"a": 80}, name=str(i)) for i, work in enumerate(works)]
    assert all(divide(one, 4))
    assert _longest(divide(one, 4)) == 140


def test_a_long_image_is_not_one_of_many() -> None:
    """Equal counts would give each runner two images, and take 310 seconds."""
    works = [Work("long", 300), *(Work(f"short-{i}", 100) for i in range(3))]
    assert sorted(map(len, divide(works, 2))) == [1, 3]


@pytest.mark.parametrize("seed", range(20))
def test_it_takes_a_third_longer_than_the_best_at_most(seed: int) -> None:
    works = [replace(work, shared={}) for work in _works(seed, 7, 1)]
    best = min(
        max(
            sum(w.seconds for w, at in zip(works, places, strict=True) if at == i)
            for i in (0, 1, 2)
        )
        for places in product(range(3), repeat=len(works))
    )
    assert _longest(divide(works, 3)) <= best * 1.35


def test_the_family_is_close_to_the_lower_bound_and_shares(images: dict[str, Image]) -> None:
    works = estimated_works(images.values(), Project(ROOT), {})
    for runners in (1, 2, 4, 8):
        parts = divide(works, runners)
        assert _longest(parts) <= lower_bound(works, runners) * 1.12
        assert sum(map(seconds_of, parts)) <= seconds_of(works) * 1.07
    shared = {work.name: {*work.shared} for work in works}
    assert shared["tf-2.2-cpu-debian"] == shared["tf-2.2-cpu-debian-intelmpi"]
    assert shared["tf-2.9-gpu-debian"] == shared["tf-2.10-gpu-debian"]  # CUDA 11.8
    assert shared["tf-2.9-cpu-debian"] & shared["tf-2.10-cpu-debian"] == {"debian-12"}


def test_times_of_earlier_builds_count_and_give_the_others_their_scale(
    images: dict[str, Image],
) -> None:
    names = ("tf-1.10-cpu-debian", "tf-1.11-cpu-debian", "tf-2.12-gpu-debian")
    three = [images[name] for name in names]
    guess = [work.seconds for work in estimated_works(three, Project(ROOT), {})]
    assert guess[0] < guess[2]
    found = estimated_works(three, Project(ROOT), {names[0]: guess[0] * 3, names[1]: guess[1] * 1})
    assert [work.seconds for work in found] == pytest.approx([guess[0] * 3, guess[1], guess[2] * 2])
