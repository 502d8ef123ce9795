"""The gate with images for GPUs: what is skipped, what that is worth, and the driver's stub."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_engine
import pytest
from test_produce import INPUTS, Bench, bench  # noqa: F401  # the fixture

from imgbuild.build.gate import examine
from imgbuild.build.stub import export_stub
from imgbuild.cli.build_tables import outcome_lines
from imgbuild.cli.test_command import report_lines
from imgbuild.engine.bake import BakeTarget
from imgbuild.errors import CheckFailedError
from imgbuild.inputs.build_inputs import BaseInput, ImageDownloads, InterpreterInput
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action
from imgbuild.settings import StandIn
from imgbuild.suites.results import Report, SuiteResult, TestSkip
from imgbuild.suites.runner import SuiteRun
from imgbuild.suites.session import TestOptions

GPU = "tf-1.13-gpu-ubuntu"
REASON = "no NVIDIA driver: the engine offers none to containers"
SKIPS = (TestSkip("test_a", REASON), TestSkip("test_b", REASON))


@pytest.fixture
def gpu(bench: Bench, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch) -> Bench:  # noqa: F811
    """Return a bench with one GPU image, on an engine without GPUs."""
    inputs = replace(
        INPUTS,
        bases={"ubuntu-16.04": BaseInput("ubuntu@sha256:a", "sha256:a", "registry")},
        interpreters={"3.6.2": InterpreterInput(None, "conda", "conda")},
        downloads={GPU: ImageDownloads({}, {})},
    )
    bench.workshop = replace(bench.workshop, inputs=inputs)
    bench.images = (images[GPU],)
    monkeypatch.setattr("imgbuild.suites.session.run_suites", lambda run, *_: _skipping(bench, run))
    return bench


def _skipping(bench: Bench, run: SuiteRun) -> Report:  # noqa: F811
    """Return what suites say that all pass, but for what needs a GPU."""
    report = bench.suites(run)
    results = tuple(
        SuiteResult("gpu_runs", 0, (), SKIPS, 0.1) if suite.suite == "gpu_runs" else suite
        for suite in report.suites
    )
    return replace(report, suites=results, gpus=fake_engine.VERSION.gpus is not None)


def test_an_image_gets_its_name_without_a_gpu_and_the_reason_is_shown(gpu: Bench) -> None:
    outcomes = gpu.build()
    text = outcome_lines(outcomes, 1)
    assert outcomes[0].ok
    assert "gpu_built passed, gpu_loadable passed, gpu_runs skipped, horovod passed" in text
    assert f"{GPU}: gpu_runs: 2 skipped: {REASON}" in text
    assert gpu.names() == set(gpu.images[0].tags)


def test_a_second_build_does_not_test_again_until_there_are_gpus(
    gpu: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.build()
    (item,) = gpu.workshop.plan(gpu.images, test=True)
    assert item.action is Action.NOTHING
    monkeypatch.setattr(fake_engine, "VERSION", replace(fake_engine.VERSION, gpus="nvidia"))
    (item,) = gpu.workshop.plan(gpu.images, test=True)
    assert item.action is Action.TEST
    gpu.build()
    (item,) = gpu.workshop.plan(gpu.images, test=True)
    assert item.action is Action.NOTHING


def test_a_suite_that_every_image_must_pass_may_not_be_skipped(
    gpu: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def skipping(run: SuiteRun, *_: object) -> Report:
        report = gpu.suites(run)
        skipped = tuple(replace(s, passed=0, skips=SKIPS) for s in report.suites[-1:])
        return replace(report, suites=(*report.suites[:-1], *skipped))

    monkeypatch.setattr("imgbuild.suites.session.run_suites", skipping)
    (outcome,) = gpu.build()
    assert (outcome.ok, outcome.state) == (False, "suites incomplete")
    assert outcome.error is not None
    assert outcome.error.startswith(f"tensorflow: 2 skipped: {REASON}. Report: ")
    assert gpu.names() == set()


def test_the_table_of_a_test_run_says_why_checks_were_skipped(gpu: Bench) -> None:
    (outcome,) = gpu.build()
    report = examine(gpu.images[0], outcome.image_id or "", gpu.workshop)
    rows = [line.split() for line in report_lines([report]).splitlines()]
    assert [GPU, "gpu_runs", "skipped", "before", "0", "0", "2", "-"] in rows
    assert [GPU, "pins", "passed", "before", "1", "0", "0", "-"] in rows
    assert f"{GPU}: gpu_runs: 2 skipped: {REASON}" in report_lines([report])
    again = examine(gpu.images[0], outcome.image_id or "", gpu.workshop, TestOptions(rerun=True))
    rows = [line.split() for line in report_lines([again]).splitlines()]
    assert [GPU, "gpu_runs", "skipped", "0", "0", "2", "0.1"] in rows


def test_the_suites_are_told_of_stand_ins_and_given_the_stub(
    gpu: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[SuiteRun] = []
    exported: list[dict[str, Any]] = []

    def seen(run: SuiteRun, *_: object) -> Report:
        runs.append(run)
        return gpu.suites(run)

    monkeypatch.setattr("imgbuild.suites.session.run_suites", seen)
    standin = StandIn(note="a test's", versions={"python": "3.6.15"})
    gpu.workshop = replace(gpu.workshop, standin=standin)
    gpu.build()
    assert runs[0].target.expected["pins"]["python"] == "3.6.15"
    assert runs[0].target.expected["standin"] is True
    monkeypatch.setattr("imgbuild.build.stub.run_export", lambda *_, **told: exported.append(told))
    assert runs[0].target.export_stub is not None
    runs[0].target.export_stub(Path("/folder"))
    assert exported[0]["log"].name.endswith(f"-{GPU}-stub.log")


def test_the_stub_comes_out_of_the_images_own_builder(
    gpu: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    targets: list[BakeTarget] = []

    def export(_buildx: object, _host: object, target: BakeTarget, **_: Any) -> None:
        targets.append(target)

    monkeypatch.setattr("imgbuild.build.stub.run_export", export)
    (outcome,) = gpu.build()
    export_stub(gpu.images[0], outcome.image_id or "", gpu.workshop, tmp_path)
    assert targets[0].target == "driver-stub"
    assert targets[0].output == f"type=local,dest={tmp_path}"
    assert targets[0].contexts["base"] == "docker-image://ubuntu@sha256:a"
    assert (targets[0].labels, targets[0].tags) == ({}, ())


@pytest.mark.parametrize("image_id", ["sha256:other", "sha256:none"])
def test_no_stub_is_built_for_an_image_from_elsewhere(
    gpu: Bench, tmp_path: Path, image_id: str
) -> None:
    gpu.build()
    (stored,) = gpu.engine.stored.values()
    gpu.engine.stored["sha256:other"] = replace(
        stored, id="sha256:other", tags=(), labels={"imgbuild.input-digest": "sha256:else"}
    )
    with pytest.raises(CheckFailedError, match="was not built from this checkout"):
        export_stub(gpu.images[0], image_id, gpu.workshop, tmp_path)
