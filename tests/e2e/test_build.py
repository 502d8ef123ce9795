"""Real images: built, tested, named, and left alone when nothing changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from imgbuild.engine.client import Engine
from imgbuild.suites.catalog import read_suites, select_required
from support.checkout import Checkout
from support.releases import release_of
from support.store_trip import OtherEngine, push_and_pull

#: The oldest TensorFlow (g++ 4, no horovodrun), the last of 1.x, and the quick start's.
VERSIONS = ("1.10", "1.15", "2.2")


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="session")
def built(checkout: Checkout, reports: Path) -> dict[str, dict[str, Any]]:
    """Build and test the versions as a user does; in a fresh state folder no verdict is known."""
    options = [part for version in VERSIONS for part in ("--tf", version)]
    options += ["--stack", "debian"]
    entries = checkout.json("build", *options, "--keep-going", "--report", str(reports))
    return {entry["image"]: entry for entry in entries}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_suite_passed_and_the_image_has_its_names(
    built: dict[str, dict[str, Any]],
    reports: Path,
    checkout: Checkout,
    engine: Engine,
    version: str,
) -> None:
    name = f"tf-{version}-cpu-debian"
    entry, report = built[name], built[name]["report"]
    assert entry["tags"] == [
        f"imgbuild/tensorflow:{tag}-cpu" for tag in (version, release_of(version))
    ]
    for tag in entry["tags"]:
        assert engine.need(tag).labels["imgbuild.input-digest"] == entry["input_digest"]
    facts = {"variant": "cpu", "tensorflow": release_of(version), "mpi_flavour": "openmpi"}
    suites = {suite.name for suite in select_required(read_suites(checkout.project.suites), facts)}
    assert {suite["suite"] for suite in report["suites"] if suite["passed"]} == suites
    assert all(not suite["failures"] and not suite["skipped"] for suite in report["suites"])
    assert json.loads((reports / name / "report.json").read_text()) == report
    assert "<testcase" in (reports / name / "junit.xml").read_text()


@pytest.mark.usefixtures("built")
def test_an_image_is_pushed_and_pulled_by_an_engine_with_the_other_store(
    checkout: Checkout, other: OtherEngine, tmp_path: Path
) -> None:
    push_and_pull(checkout, "tf-1.10-cpu-debian", other, other.host, tmp_path)


@pytest.mark.usefixtures("built")
def test_the_images_share_what_is_equal(engine: Engine) -> None:
    names = [f"imgbuild/tensorflow:{version}-cpu" for version in VERSIONS]
    assert len({tuple(engine.need(name).layers[:3]) for name in names}) == 1
