"""Every suite fails on an image that is broken for it, and names the fault.

Each Dockerfile of `broken/` is tested as the image that it derives from, by one suite.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from imgbuild.suites.catalog import read_suites
from support.broken_images import NEED_A_GPU, Broken, broken_images
from support.checkout import Bases, Checkout

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


@pytest.mark.parametrize("broken", EACH)
def test_the_suite_fails_and_names_the_fault(
    broken: Broken, base: Bases, checkout: Checkout, tmp_path: Path
) -> None:
    """The image is built quickly and without a network, and removed again."""
    image = base(broken.base)
    try:
        checkout.printed(
            *("build", "--quiet", "--network=none", f"--build-arg=BASE={image.tag}"),
            *(f"--tag={broken.tag}", f"--file={broken.file}", str(broken.file.parent)),
        )
        (report,) = checkout.json(
            *image.options,
            *("test", *image.selection, broken.tag, "--suite", broken.suite),
            *("--report", str(tmp_path)),
            timeout=900,
            code=1,
        )
    finally:
        checkout.docker("rmi", "--force", broken.tag)
    (suite,) = report["suites"]
    assert suite["suite"] == broken.suite
    found = [*suite["failures"], *suite["timed_out"]]  # some faults show by the clock alone
    assert any(_is_named(broken, failure) for failure in found), found


def _is_named(broken: Broken, failure: dict[str, Any]) -> bool:
    """Return whether a failed check is the one that the header names, with the words it names."""
    return bool(
        re.search(broken.fails, failure["test"])
        and re.search(broken.says, failure["message"], re.DOTALL)
    )


def test_every_suite_has_a_broken_image(checkout: Checkout) -> None:
    suites = {suite.name for suite in read_suites(checkout.project.suites)}
    # Only extensions have `imports`: test_extend.py shows how it fails.
    assert {broken.suite for broken in BROKEN} == suites - NEED_A_GPU - {"imports"}
