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


def _check(outcome: str, message: str = "", test: str = "test_it[docker://first-a]") -> Any:
    return {"test": test, "outcome": outcome, "seconds": 1.25, "message": message}


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["passed", "passed"], "passed"),
        (["passed", "skipped"], "incomplete"),
        (["skipped"], "skipped"),
        (["passed", "failed", "skipped"], "failed"),
        ([], "failed"),
    ],
)
def test_the_verdict_of_a_suite(outcomes: list[str], verdict: str) -> None:
    assert suite_result("gpu_runs", [_check(one) for one in outcomes])["verdict"] == verdict


def _report(*suites: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"image": "one", "suites": list(suites)}]


def test_what_proves_nothing_ends_badly() -> None:
    good = suite_result("gpu_runs", [_check("passed")])
    idle = suite_result("gpu_runs", [_check("skipped", "no driver")])
    bad = suite_result("gpu_built", [_check("failed", "no NCCL")])
    assert faults(_report(good)) == []
    assert faults(_report(good, bad)) == ["one: gpu_built failed"]
    assert faults(_report(idle)) == ["one: nothing ran on a GPU"]
    assert faults(_report(suite_result("gpu_built", [_check("passed")]))) == []


@pytest.mark.parametrize(
    ("found", "gpus", "cuda"),
    [
        (DRIVER, "NVIDIA H200 (capability 9.0)", "13.0"),
        ({**DRIVER, "cuda": None, "error": "no libcuda", "devices": []}, "no libcuda", "not known"),
    ],
)
def test_the_machine_is_added_to_what_imgbuild_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], gpus: str, cuda: str
) -> None:
    reports = _report(suite_result("gpu_runs", [_check("passed")]))
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


def test_only_the_drivers_own_libraries_are_lent() -> None:
    for name in ("libcuda.so.1", "libcuda.so.580.159.03", "libnvidia-ptxjitcompiler.so.1"):
        assert chroot_run.DRIVER.fullmatch(name)
    for name in ("libcudart.so.12", "libcudnn.so.8", "libc.so.6"):
        assert not chroot_run.DRIVER.fullmatch(name)


def test_the_driver_is_found_where_a_folder_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chroot_run, "FOLDERS", (tmp_path / "a", tmp_path / "b"))
    assert chroot_run.driver_folder() is None
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / chroot_run.LIBRARY).touch()
    assert chroot_run.driver_folder() == tmp_path / "b"
