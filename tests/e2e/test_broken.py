"""Every suite fails on an image that is broken for it, and names the fault.

One Dockerfile an image, in `broken/`. What is built from it is tested as the image that it derives
from, by the suite in its header alone, and removed.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broken_images import NEED_A_GPU, Broken, broken_images
from checkout import Base, Checkout

from imgbuild.suites.catalog import read_suites

BROKEN = broken_images()
#: Images of the stack `ubuntu` are built on stand-ins for its upstreams, which takes long.
EACH = [
    pytest.param(
        one,
        id=one.file.stem,
        marks=[pytest.mark.nightly] if one.slow or one.base.endswith("ubuntu") else [],
    )
    for one in BROKEN
]


@pytest.fixture
def build(checkout: Checkout) -> Iterator[Callable[[Broken, str], None]]:
    """Return how to build an image, quickly and without a network; it is removed again."""
    made: list[str] = []

    def call(broken: Broken, base: str) -> None:
        made.append(broken.tag)
        checkout.docker(
            *("build", "--quiet", "--network=none", f"--build-arg=BASE={base}"),
            *(f"--tag={broken.tag}", f"--file={broken.file}", str(broken.file.parent)),
            code=0,
        )

    yield call
    for tag in made:
        checkout.docker("rmi", "--force", tag)


@pytest.mark.parametrize("broken", EACH)
def test_the_suite_fails_and_names_the_fault(
    broken: Broken,
    build: Callable[[Broken, str], None],
    base: Callable[[str], Base],
    checkout: Checkout,
    tmp_path: Path,
) -> None:
    image = base(broken.base)
    build(broken, image.tag)
    result = checkout.run(
        *image.options,
        *("test", *image.selection, "--image", broken.tag, "--suite", broken.suite),
        *("--json", "--report", str(tmp_path)),
        timeout=900,
        code=1,
    )
    (report,) = json.loads(result.stdout)
    (suite,) = report["suites"]
    assert suite["suite"] == broken.suite
    assert _named(broken, suite["failures"]), _told(suite["failures"])


def _named(broken: Broken, failures: list[dict[str, Any]]) -> bool:
    """Return whether a check that the header names failed with the words that it names."""
    return any(
        re.search(broken.fails, failure["test"])
        and re.search(broken.says, failure["message"], re.DOTALL)
        for failure in failures
    )


def _told(failures: list[dict[str, Any]]) -> str:
    return "\n".join(f"{failure['test']}: {failure['message']}" for failure in failures)


def test_every_suite_has_a_broken_image(checkout: Checkout) -> None:
    suites = {suite.name for suite in read_suites(checkout.project.suites)} - NEED_A_GPU
    assert suites - {broken.suite for broken in BROKEN} == set()


def test_every_broken_image_is_of_a_suite(checkout: Checkout) -> None:
    suites = {suite.name for suite in read_suites(checkout.project.suites)}
    assert {broken.suite for broken in BROKEN} <= suites


def test_an_image_that_is_whole_passes_where_a_broken_one_fails(
    base: Callable[[str], Base], checkout: Checkout, tmp_path: Path
) -> None:
    """Else a suite that fails everywhere would seem to find every fault."""
    image = base("tf-1.12-cpu-debian")
    checkout.run(
        *image.options,
        *("test", *image.selection, "--suite", "pins", "--report", str(tmp_path)),
    )
