"""The gate: what is skipped without a GPU, the driver's stub, and budgets on both stores."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.build.gate import budget_problem, export_stub, suite_target
from imgbuild.cli.build_command import build_lines
from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.plan.plan import Action
from imgbuild.suites.results import Check, Report, suite_result
from support import fake_engine
from support.bench import Bench, engine_has
from support.fake_engine import FakeEngine
from support.releases import release_of

GPU = "tf-1.13-gpu-ubuntu"
REASON = "no NVIDIA driver: the engine offers none to containers"
SKIPS = (Check(test="test_a", message=REASON), Check(test="test_b", message=REASON))


@pytest.fixture
def gpu(bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a bench with one GPU image, on an engine without GPUs."""
    bench.use(images[GPU])
    monkeypatch.setattr("imgbuild.suites.session.run_suites", _skipping(bench, "gpu_runs"))
    return bench


def _skipping(bench: Bench, name: str) -> Callable[..., Report]:
    """Return suites that all pass, but for one whose tests are skipped."""

    def run(*arguments: Any) -> Report:
        report = bench.suites(*arguments)
        results = tuple(
            suite_result(name, skipped=SKIPS, seconds=0.1) if suite.suite == name else suite
            for suite in report.suites
        )
        return replace(report, suites=results, gpus=fake_engine.VERSION.gpus is not None)

    return run


def _next(bench: Bench) -> Action:
    (item,) = bench.plan()
    return item.action


def test_gpu_image_is_tested_again_once_there_is_a_gpu(
    gpu: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = build_lines(gpu.run())
    assert "gpu_built passed, gpu_loadable passed, gpu_runs skipped, horovod passed" in text
    assert f"{GPU}: gpu_runs: 2 skipped: {REASON}" in text
    assert gpu.tags() == gpu.tags(GPU)
    assert _next(gpu) is Action.NOTHING
    engine_has(monkeypatch, gpus="nvidia")
    assert _next(gpu) is Action.TEST
    gpu.build()  # offered, and of the wrong age
    assert _next(gpu) is Action.TEST
    monkeypatch.setattr("imgbuild.suites.session.run_suites", gpu.suites)
    gpu.build()
    assert _next(gpu) is Action.NOTHING


@pytest.fixture
def driver(gpu: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Return what changes driver and GPUs of an engine with GPUs; without any, none answers."""
    engine_has(monkeypatch, gpus="nvidia")
    monkeypatch.setattr("imgbuild.suites.container.DRIVER_VERSION", tmp_path / "version")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def change(version: str, listed: str, host: str | None = None) -> None:
        (tmp_path / "version").write_text(version)
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{listed and f'echo {listed} #'} exit 9")
        program.chmod(0o755)
        gpu.engine.host = host

    return change


def test_gpu_results_count_until_driver_or_gpus_change(
    gpu: Bench, driver: Callable[..., None], tmp_path: Path
) -> None:
    """NCCL refuses two ranks on one GPU: there, something is always skipped."""
    for version, listed in (("535.1", "GPU 0: A"), ("535.1", "GPU 0: B"), ("570.2", "GPU 0: A")):
        driver(version, listed)
        assert _next(gpu) is not Action.NOTHING
        assert gpu.build()[0].ok
        assert _next(gpu) is Action.NOTHING
    (tmp_path / "version").unlink()
    assert _next(gpu) is Action.TEST


@pytest.mark.parametrize(("listed", "host"), [("", None), ("GPU 0: A", "tcp://example.org:2376")])
def test_gpu_results_do_not_count_for_unknown_gpus(
    gpu: Bench, driver: Callable[..., None], listed: str, host: str | None
) -> None:
    driver("535.1", listed, host)
    assert gpu.build()[0].ok
    assert _next(gpu) is Action.TEST


def test_a_suite_that_every_image_must_pass_may_not_be_skipped(
    gpu: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgbuild.suites.session.run_suites", _skipping(gpu, "tensorflow"))
    (result,) = gpu.build()
    assert (result.ok, result.state) == (False, "suites incomplete")
    assert str(result.error).startswith(f"tensorflow: 2 skipped: {REASON}. Report: ")
    assert gpu.tags() == set()


def test_the_stub_is_of_the_images_own_builder(
    gpu: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[BuildTarget, Path]] = []

    def export(_buildx: object, target: BuildTarget, folder: Path, **_: object) -> None:
        asked.append((target, folder))

    gpu.build()
    image, (item,) = gpu.context.images[0], gpu.plan()
    monkeypatch.setattr("imgbuild.build.image_build.export_files", export)
    export_stub(image, item.image_id or "", gpu.context, tmp_path)
    ((stub, folder),) = asked
    assert (stub.target, stub.labels) == ("driver-stub", {})
    assert folder == tmp_path
    assert stub.contexts["base"] == "docker-image://ubuntu@sha256:a"
    other = StoredImage("sha256:other", (), {"imgbuild.input-digest": "sha256:else"})
    gpu.engine.stored[other.id] = other
    for image_id in (other.id, "sha256:none"):
        with pytest.raises(CheckFailedError, match="was not built from this checkout"):
            export_stub(image, image_id, gpu.context, tmp_path)
    failed = {GPU: MachineError("no network")}
    monkeypatch.setattr("imgbuild.build.gate.fetch_downloads", lambda *_, **__: ({}, failed))
    with pytest.raises(MachineError, match="no network"):
        export_stub(image, item.image_id or "", gpu.context, tmp_path)


def test_suites_expect_what_a_stand_in_has(gpu: Bench) -> None:
    gpu.pretend_standin()
    expected = suite_target(gpu.context.images[0], "sha256:1", gpu.context).expected
    assert (expected["standin"], expected["pins"]["python"]) == (True, "3.6.15")


ROW = f"{{tensorflow: {release_of('2.2')}, stack: debian, variants: [cpu], horovod: 0.19.5}}"


def _with(budget: str) -> str:
    return ROW.replace("horovod: 0.19.5", f"horovod: 0.19.5, budget: {budget}")


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("{cpu: 850000000}", "'850000000' is not an image's size in MB"),
        ("{cpu: 9}", "'9' is not an image's size in MB"),
        ("{cpu: [1]}", "is not an image's size in MB"),
        ("{tpu: 850}", "'tpu' is not allowed; allowed: 'cpu' or 'gpu'"),
        ("{gpu: 850}", "a budget for gpu, but the variants of this row are: cpu"),
        ("850", "budget must be a mapping (key: value)"),
    ],
)
def test_an_implausible_budget_is_refused(
    edited: Callable[..., Path], refusal: Callable[[Path], str], budget: str, expected: str
) -> None:
    assert expected in refusal(edited(ROW, _with(budget)))


def test_a_budget_belongs_to_one_image(edited: Callable[..., Path]) -> None:
    matrix = load_matrix(edited(ROW, _with("{cpu: 850}")))
    budgets = {image.name: image.budget for image in all_images(matrix) if image.budget}
    assert budgets == {"tf-2.2-cpu-debian": 850_000_000}


def test_over_budget_allows_five_per_cent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, engine = 100_000_000, FakeEngine()
    assert budget_problem(105_000_000, budget, engine) is None
    assert "its budget of 100 MB; 5 %" in (budget_problem(105_000_001, budget, engine) or "")
    assert budget_problem(10**12, None, engine) is None
    # A containerd store counts blocks. As tf-1.10-cpu-debian did, 531 MB on a graph driver:
    graph, containerd = 530_590_823, 583_450_624
    assert budget_problem(containerd, graph, engine) is not None
    engine_has(monkeypatch, containerd_store=True)
    assert budget_problem(containerd, graph, engine) is None
    assert budget_problem(graph * 117 // 100, graph, engine) is not None
