"""Documented images, built and tested on stand-ins for the upstreams; `make standin` builds all."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.fetch import fetch_files, plan_listing
from imgbuild.core.project import Project, SettingsOptions
from imgbuild.engine.client import Engine
from imgbuild.inputs.download import show_progress
from imgbuild.inputs.fetched import read_listings
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.net.sites import Sites
from standin.server import StandInServer
from support.checkout import Checkout

pytestmark = pytest.mark.nightly

IMAGES = ("tf-1.13-cpu-ubuntu", "tf-1.14-cpu-ubuntu", "tf-1.12-gpu-ubuntu", "tf-2.3-gpu-ubuntu")
GPU_IMAGES = tuple(name for name in IMAGES if "gpu" in name)


@pytest.mark.parametrize("name", IMAGES)
def test_every_corner_is_built_tested_and_named(
    built: dict[str, dict[str, Any]], engine: Engine, name: str
) -> None:
    """And says that it is made of stand-ins, so that it cannot be pushed."""
    outcome = built[name]
    assert outcome["error"] is None, outcome["error"]
    suites = {suite["suite"]: suite for suite in outcome["report"]["suites"]}
    assert {"horovod", "pins", "tensorboard", "tensorflow"} <= {*suites}
    skipped = suites.pop("gpu_runs", None)
    if skipped and not engine.version().gpus:
        assert skipped["verdict"] == "skipped"
        assert all(one["reason"].startswith("no NVIDIA driver") for one in skipped["skipped"])
    assert {suite["verdict"] for suite in suites.values()} == {"passed"}
    assert outcome["tags"]
    for tag in outcome["tags"]:
        assert tag.startswith("standin.invalid/"), "RFC 2606: no registry is called so"
        labels = engine.need(tag).labels
        assert "stand-in" in labels["imgbuild.standin"]
        assert "SHA256_MINICONDA" in labels["imgbuild.input.substitutes"]


def test_every_upstream_is_asked_through_its_mirror(
    checkout: Checkout,
    upstreams: tuple[StandInServer, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `imgbuild build --fetch` asks; without Python packages, whose index is no stand-in."""
    server, settings_file = upstreams
    monkeypatch.setattr("imgbuild.inputs.upstream_files.python_items", lambda *_: ())
    project = Project(checkout.root, SettingsOptions(settings_file))
    settings = project.settings
    matrix = load_matrix(project.matrix)
    images = tuple(image for image in all_images(matrix) if image.name in GPU_IMAGES)
    sites = Sites(matrix.upstream_urls, settings)
    server.asked.clear()
    with open_context(project, images, BuildOptions(), print) as context, context.display:
        listings = [plan_listing(image, sites, tmp_path, context) for image in images]
    planned = {*server.asked}
    fetch_files(listings, sites, tmp_path, show_progress())
    archives = {name for name in settings.mirrors if matrix.upstreams[name].kind == "apt"}
    assert _sites(planned) >= archives, "apt in a build"
    assert _sites(server.asked - planned) == {*settings.mirrors}, "packages and downloads"
    assert read_listings(tmp_path, images, project, settings), "signed by stand-ins' keys"
    assert len(settings.mirrors) == 5


def _sites(paths: Iterable[str]) -> set[str]:
    return {path.split("/")[1] for path in paths}
