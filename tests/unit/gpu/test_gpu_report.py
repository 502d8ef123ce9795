"""The report of a run on GPUs: the machine, verdicts as `imgbuild test` has them, and its end."""

import json
from pathlib import Path
from typing import Any

import chroot_run
import gpu_report
import pytest
from gpu_report import faults, suite_result

DRIVER: dict[str, Any] = {
    "kernel": "580.159.03",
    "error": None,
    "cuda": 13000,
    "devices": [{"name": "NVIDIA H200", "capability": "9.0"}],
}


def _report(suite: str, *outcomes: str) -> list[dict[str, Any]]:
    """Return the report of an image and a suite with checks that end so."""
    check = {"test": "test_it[docker://first-a]", "seconds": 1.25, "message": "why"}
    checks = [{**check, "outcome": outcome} for outcome in outcomes]
    return [{"image": "one", "suites": [suite_result(suite, checks)]}]


@pytest.mark.parametrize(
    ("suite", "outcomes", "verdict", "fault"),
    [
        ("gpu_runs", ["passed", "passed"], "passed", []),
        ("gpu_runs", ["passed", "skipped"], "incomplete", []),
        ("gpu_runs", ["skipped"], "skipped", ["one: nothing ran on a GPU"]),
        ("gpu_built", ["skipped"], "skipped", []),
        ("gpu_built", ["passed", "failed", "skipped"], "failed", ["one: gpu_built failed"]),
        ("gpu_built", [], "failed", ["one: gpu_built failed"]),
    ],
)
def test_what_proves_nothing_ends_badly(
    suite: str, outcomes: list[str], verdict: str, fault: list[str]
) -> None:
    report = _report(suite, *outcomes)
    assert report[0]["suites"][0]["verdict"] == verdict
    assert faults(report) == fault


@pytest.mark.parametrize(
    ("found", "gpus", "cuda"),
    [
        (DRIVER, "NVIDIA H200 (capability 9.0)", "13.0"),
        ({**DRIVER, "cuda": None, "error": "no libcuda", "devices": []}, "no libcuda", "not known"),
    ],
    ids=["GPU", "no driver"],
)
def test_the_machine_is_added_to_what_imgbuild_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], gpus: str, cuda: str
) -> None:
    reports = _report("gpu_runs", "passed")
    (tmp_path / "report.json").write_text(json.dumps(reports))
    files = {"/proc/cpuinfo": "model name\t: Xeon\n", "/proc/meminfo": "MemTotal: 131072000 kB\n"}
    monkeypatch.setattr(gpu_report, "read", files.get)
    monkeypatch.setattr(gpu_report, "asked", lambda _: found)
    gpu_report.main(tmp_path)
    written = json.loads((tmp_path / "gpu.json").read_text())
    machine = written["machine"]
    assert written["reports"] == reports
    assert machine["GPUs"].endswith(gpus)
    assert (machine["driver"], machine["CUDA of the driver"]) == ("580.159.03", cuda)
    assert (machine["CPU"].partition(" x ")[2], machine["memory"]) == ("Xeon", "131 GB")
    assert "580.159.03" in (tmp_path / "gpu.md").read_text()


def test_the_driver_is_found_where_a_folder_has_it_and_nothing_else_is_lent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chroot_run, "FOLDERS", (tmp_path / "none", tmp_path))
    assert chroot_run.driver_folder() is None
    (tmp_path / chroot_run.LIBRARY).touch()
    assert chroot_run.driver_folder() == tmp_path
    for name in (chroot_run.LIBRARY, "libcuda.so.580.159.03", "libnvidia-ptxjitcompiler.so.1"):
        assert chroot_run.DRIVER.fullmatch(name)
    for name in ("libcudart.so.12", "libcudnn.so.8", "libc.so.6"):
        assert not chroot_run.DRIVER.fullmatch(name)
