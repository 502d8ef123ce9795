"""`imgbuild test` on real images: side by side, again, and images built on ours."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imgbuild.dockerfile.labels import ADDED
from support.checkout import Bases, Checkout

TWO = ("tf-1.10-cpu-debian", "tf-2.2-cpu-debian")
DERIVED = "imgbuild-e2e-derived"


@pytest.fixture
def derived(checkout: Checkout, base: Bases, tmp_path: Path) -> Iterator[str]:
    """Give an image as users make them: ours, and a package on top, which a label names."""
    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.0\n")
    packages = "/opt/python/lib/python3.6/site-packages"
    (tmp_path / "Dockerfile").write_text(
        f"FROM {base(TWO[0]).tag}\nCOPY METADATA {packages}/x-1.0.dist-info/METADATA\n"
        f'LABEL {ADDED}="x==1.0"\n'
    )
    checkout.docker("build", "--quiet", "--network=none", "-t", DERIVED, str(tmp_path), code=0)
    yield DERIVED
    checkout.docker("rmi", "--force", DERIVED)


def _before(reports: list[dict[str, Any]]) -> dict[tuple[str, str], bool]:
    """Return of each suite whether its verdict is one of before."""
    return {
        (report["image"], suite["suite"]): suite["before"] is not None
        for report in reports
        for suite in report["suites"]
    }


def test_two_images_at_once_and_then_nothing_to_run(
    base: Bases, checkout: Checkout, tmp_path: Path
) -> None:
    for name in TWO:
        base(name)
    command = ["test", "--tf", "1.10", "--tf", "2.2", "--stack", "debian", "--jobs", "2"]
    command += ["--suite", "pins", "--suite", "contents", "--report", str(tmp_path)]
    lines = [line.split() for line in checkout.run(*command, "--refresh").stderr.splitlines()]
    begun = [lines.index([name, "testing", "contents,", "pins"]) for name in TWO]
    ended = [lines.index([name, "passed"]) for name in TWO]
    assert max(begun) < min(ended), lines
    for name in TWO:
        assert f'<testsuite name="{name}"' in (tmp_path / name / "junit.xml").read_text()
    started = time.monotonic()
    again = checkout.json(*command)
    assert time.monotonic() - started < 10
    keys = {(name, suite) for name in TWO for suite in ("pins", "contents")}
    assert _before(again) == dict.fromkeys(keys, True)
    assert "passed before" in (tmp_path / "summary.md").read_text()
    assert _before(checkout.json(*command, "--refresh")) == dict.fromkeys(keys, False)


def test_an_image_that_was_built_on_ours(checkout: Checkout, derived: str) -> None:
    command = ("test", derived, "--suite", "pins")
    (report,) = checkout.json(*command)
    (pins,) = report["suites"]
    assert (pins["failed"], pins["skipped"]) == (0, [])
    bad = checkout.run(*command, "--tf", "2.2", "--stack", "debian", code=1)
    assert "horovod: pinned 0.19.5, the image has 0.15.2" in bad.stderr
