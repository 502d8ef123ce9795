"""Real images: built, tested, named, and left alone when nothing changed."""

import json
from pathlib import Path
from typing import Any

import pytest
from checkout import Checkout
from store_trip import OtherEngine, push_and_pull

from imgbuild.engine.client import Engine
from imgbuild.suites.catalog import read_suites, required
from releases import release_of

#: The oldest TensorFlow (g++ 4, no horovodrun), the last of 1.x, and the quick start's.
VERSIONS = ("1.10", "1.15", "2.2")


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="session")
def built(checkout: Checkout, reports: Path) -> dict[str, dict[str, Any]]:
    """Build and test the versions as a user does; return what ``--json`` says of each.

    No verdict is remembered in the fresh state folder, so the suites run for real in any case.
    """
    options = [part for version in VERSIONS for part in ("--tf", version)]
    options += ["--stack", "debian"]
    result = checkout.run("build", *options, "--keep-going", "--json", "--report", str(reports))
    return {entry["image"]: entry for entry in json.loads(result.stdout)}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_image_has_its_names(
    built: dict[str, dict[str, Any]], engine: Engine, version: str
) -> None:
    entry = built[f"tf-{version}-cpu-debian"]
    assert entry["tags"] == [
        f"imgbuild/tensorflow:{version}-cpu-debian",
        f"imgbuild/tensorflow:{release_of(version)}-cpu-debian",
    ]
    for tag in entry["tags"]:
        stored = engine.inspect(tag)
        assert stored is not None
        assert stored.labels["imgbuild.input-digest"] == entry["input_digest"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_suite_passed_and_nothing_was_skipped(
    built: dict[str, dict[str, Any]], reports: Path, checkout: Checkout, version: str
) -> None:
    name = f"tf-{version}-cpu-debian"
    report = built[name]["report"]
    suites = {suite.name for suite in required(read_suites(checkout.project.suites), "cpu")}
    assert {suite["suite"] for suite in report["suites"] if suite["passed"]} == suites
    assert all(not suite["failures"] and not suite["skipped"] for suite in report["suites"])
    assert json.loads((reports / name / "report.json").read_text()) == report
    assert "<testcase" in (reports / name / "junit.xml").read_text()


@pytest.mark.usefixtures("built")
def test_one_suite_alone(checkout: Checkout) -> None:
    result = checkout.run("test", "--tf", "1.10", "--stack", "debian", "--suite", "pins")
    assert result.stdout.splitlines()[1].split()[:3] == ["tf-1.10-cpu-debian", "pins", "passed"]


@pytest.mark.usefixtures("built")
def test_the_suites_judge_the_image_they_are_given(checkout: Checkout) -> None:
    """TensorFlow 1.15's image is not what the matrix says of 1.10."""
    name = "imgbuild/tensorflow:1.15-cpu-debian"
    result = checkout.run(
        "test", "--tf", "1.10", "--stack", "debian", "--suite", "pins", "--image", name, code=1
    )
    assert f"pinned {release_of('1.10')}, the image has {release_of('1.15')}" in result.stderr


@pytest.mark.usefixtures("built")
def test_a_second_build_has_nothing_to_do_and_says_so(checkout: Checkout) -> None:
    result = checkout.run("build", "--tf", "2.2", "--stack", "debian")
    assert (
        "Nothing to do: 1 image is up to date (imgbuild/tensorflow:2.2-cpu-debian)."
        in result.stdout
    )
    assert "docker" in result.stdout


@pytest.mark.usefixtures("built")
def test_an_image_is_pushed_and_pulled_by_an_engine_with_the_other_store(
    checkout: Checkout, other: OtherEngine, tmp_path: Path
) -> None:
    push_and_pull(checkout, "tf-1.10-cpu-debian", other, other.host, tmp_path)


@pytest.mark.usefixtures("built")
def test_the_images_share_what_is_equal(checkout: Checkout) -> None:
    layers = []
    for version in VERSIONS:
        name = f"imgbuild/tensorflow:{version}-cpu-debian"
        text = checkout.docker("image", "inspect", "-f", "{{json .RootFS.Layers}}", name).stdout
        layers.append(json.loads(text))
    assert layers[0][:3] == layers[1][:3] == layers[2][:3]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    "command",
    [
        "! command -v g++ && ! command -v gcc && ! command -v cmake",
        "! test -e /run/secrets/ca",
        # debconf's database is no cache: what packages asked, and the answers.
        'test -z "$(find /var/lib/apt/lists /var/cache/[!d]* /root/.cache -size +0 -type f)"',
        "! ls /etc/ssh/ssh_host_* 2>/dev/null",
        "test \"$(python -c 'import sys; print(sys.prefix)')\" = /opt/python",
        "env -i /usr/local/bin/python -c 'import tensorflow'",
    ],
)
def test_the_image_holds_nothing_it_should_not(checkout: Checkout, command: str) -> None:
    name = "imgbuild/tensorflow:2.2-cpu-debian"
    checkout.docker("run", "--rm", name, "sh", "-c", command, code=0)
