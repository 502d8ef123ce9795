"""The documented images, built and tested for real on stand-ins for the upstreams.

One image a corner of operating system, MPI flavour and variant, in `make nightly`; `make standin`
builds all twenty.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import Checkout

from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.fetch import FetchJob, fetch_files, plan_listing
from imgbuild.engine.client import Engine
from imgbuild.inputs.download import shown_progress
from imgbuild.inputs.fetched import open_fetched
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.project import SETTINGS_VARIABLE, Project
from imgbuild.settings import Sites, load_settings
from standin.server import StandInServer, serve

pytestmark = pytest.mark.nightly

IMAGES = ("tf-1.13-cpu-ubuntu", "tf-1.14-cpu-ubuntu", "tf-1.12-gpu-ubuntu", "tf-2.3-gpu-ubuntu")
GPU_IMAGES = tuple(name for name in IMAGES if "gpu" in name)


@pytest.mark.parametrize("name", IMAGES)
def test_every_corner_is_built_tested_and_named(
    built: dict[str, dict[str, Any]], name: str
) -> None:
    outcome = built[name]
    assert outcome["error"] is None, outcome["error"]
    verdicts = {suite["suite"]: suite["verdict"] for suite in outcome["report"]["suites"]}
    without_gpu = {"gpu_runs"} if name in GPU_IMAGES else set()
    assert {suite for suite, verdict in verdicts.items() if verdict != "passed"} <= without_gpu
    assert {"horovod", "pins", "tensorboard", "tensorflow"} <= {*verdicts}


@pytest.mark.parametrize("name", GPU_IMAGES)
def test_checks_that_need_a_gpu_are_skipped_with_the_reason(
    built: dict[str, dict[str, Any]], engine: Engine, name: str
) -> None:
    if engine.version().gpus:
        pytest.skip("this engine offers GPUs")
    suites = {suite["suite"]: suite for suite in built[name]["report"]["suites"]}
    assert suites["gpu_built"]["verdict"] == "passed"
    assert suites["gpu_loadable"]["verdict"] == "passed"
    assert suites["gpu_runs"]["verdict"] == "skipped"
    reasons = {skip["reason"] for skip in suites["gpu_runs"]["skipped"]}
    assert all(reason.startswith("no NVIDIA driver") for reason in reasons)


@pytest.mark.parametrize("name", IMAGES)
def test_a_stand_in_build_says_so_and_cannot_be_pushed(
    built: dict[str, dict[str, Any]], engine: Engine, name: str
) -> None:
    tags = built[name]["tags"]
    assert tags
    for tag in tags:
        assert tag.startswith("standin.invalid/"), "RFC 2606: no registry is called so"
        stored = engine.inspect(tag)
        assert stored is not None
        assert "stand-in" in stored.labels["imgbuild.standin"]
        assert "SHA256_MINICONDA" in stored.labels["imgbuild.input.substitutes"]


@pytest.mark.parametrize("name", GPU_IMAGES)
def test_no_layer_has_a_toolkit_or_a_compiler(
    built: dict[str, dict[str, Any]], checkout: Checkout, name: str
) -> None:
    tag = built[name]["tags"][0]
    history = checkout.docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", tag).stdout
    assert "libnccl2=2.4.8" in history
    for absent in ("minimal-build", "libnccl-dev", "g++", "-dev-"):
        assert absent not in history
    find = "find / -xdev ( -name nvcc -o -name 'libcuda.so*' -o -name 'cc1*' -o -name '*.deb' )"
    find = find.replace("(", r"\(").replace(")", r"\)")
    assert checkout.docker("run", "--rm", tag, "sh", "-c", find).stdout == ""


def test_every_upstream_is_asked_through_its_mirror(
    checkout: Checkout,
    upstreams: tuple[StandInServer, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `imgbuild fetch` does it for a folder that is empty: whatever was built before, it asks.

    The Python packages, whose index is no stand-in, are left out.
    """
    server, settings_file = upstreams
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings_file))
    monkeypatch.setattr("imgbuild.inputs.upstream_files.python_items", lambda *_: ())
    project, settings = Project(checkout.root), load_settings(settings_file)
    matrix = load_matrix(project.matrix)
    images = tuple(image for image in all_images(matrix) if image.name in GPU_IMAGES)
    job = FetchJob(project, settings, Sites(matrix.upstream_urls, settings), tmp_path)
    server.asked.clear()
    with open_context(project, images, BuildOptions(), print) as context, context.display:
        listings = [plan_listing(image, job, context) for image in images]
    planned = {*server.asked}
    fetch_files(listings, job, shown_progress())
    archives = {name for name in settings.mirrors if matrix.upstreams[name].kind == "apt"}
    assert _sites(planned) >= archives, "apt in a build"
    assert _sites(server.asked - planned) == {*settings.mirrors}, "packages and downloads"
    assert open_fetched(tmp_path, images, project, settings, tmp_path), "signed by stand-ins' keys"
    assert {*settings.mirrors} == {
        *("anaconda", "nvidia-cuda", "nvidia-machine-learning", "open-mpi", "ubuntu")
    }


def _sites(paths: Iterable[str]) -> set[str]:
    """Return the upstreams that the server's paths belong to."""
    return {path.split("/")[1] for path in paths}


def test_a_mirror_that_answers_with_html_builds_and_keeps_nothing(
    checkout: Checkout,
    upstreams: tuple[StandInServer, Path],
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a captive portal does, or a proxy that wants a login."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = yaml.safe_load(upstreams[1].read_text(encoding="utf-8"))
    name = "Miniconda3-4.5.11-Linux-x86_64.sh"
    page = tmp_path / "www" / "miniconda" / name
    page.parent.mkdir(parents=True)
    page.write_text("<!doctype html><title>Sign in</title>", encoding="utf-8")
    # Another content than any that was fetched before: the mirror has to be asked.
    settings["substitutes"][name] = "0" * 64
    before = {image.id for image in engine.images("imgbuild.name")}
    with serve(tmp_path) as server:
        settings["mirrors"]["anaconda"] = {"url": f"{server.url}/"}
        file = tmp_path / "settings.yaml"
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        build = ("build", "--stack", "ubuntu", "--tf", "1.14", "--cpu")
        result = checkout.run("--settings", str(file), *build, code=1, timeout=300)
    assert f"{name} is not the expected file" in result.stderr
    assert "HTML page (“Sign in”)" in result.stderr
    assert {image.id for image in engine.images("imgbuild.name")} == before
    kept = [path for path in (tmp_path / "cache" / "imgbuild").rglob("*") if path.is_file()]
    assert not [path for path in kept if b"Sign in" in path.read_bytes()[:200]]
