"""Dividing images: shared stages together, close to the best that is possible."""

from dataclasses import replace

import pytest

from imgbuild.core.project import Project
from imgbuild.matrix.images import Image
from imgbuild.plan.division import Work, divide, estimate_works, lower_bound, sum_seconds
from support.project_copy import ROOT


def _longest(parts: list[list[Work]]) -> float:
    return max(map(sum_seconds, parts))


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


def test_the_family_is_close_to_the_lower_bound_and_shares(images: dict[str, Image]) -> None:
    works = estimate_works(images.values(), Project(ROOT), {})
    for runners in (1, 2, 4, 8):
        parts = divide(works, runners)
        assert divide(works[::-1], runners) == parts, "their order does not matter"
        assert _longest(parts) <= lower_bound(works, runners) * 1.12
        assert sum(map(sum_seconds, parts)) <= sum_seconds(works) * 1.07
    shared = {work.name: {*work.shared} for work in works}
    assert shared["tf-2.2-cpu-debian"] == shared["tf-2.2-cpu-debian-intelmpi"]
    assert shared["tf-2.9-gpu-debian"] == shared["tf-2.10-gpu-debian"]  # CUDA 11.8
    assert shared["tf-2.9-cpu-debian"] & shared["tf-2.10-cpu-debian"] == {"debian-12"}


def test_estimates_scale_with_times_of_earlier_builds(
    images: dict[str, Image],
) -> None:
    names = ("tf-1.10-cpu-debian", "tf-1.11-cpu-debian", "tf-2.12-gpu-debian")
    three = [images[name] for name in names]
    guess = [work.seconds for work in estimate_works(three, Project(ROOT), {})]
    assert guess[0] < guess[2]
    found = estimate_works(three, Project(ROOT), {names[0]: guess[0] * 3, names[1]: guess[1] * 1})
    assert [work.seconds for work in found] == pytest.approx([guess[0] * 3, guess[1], guess[2] * 2])
