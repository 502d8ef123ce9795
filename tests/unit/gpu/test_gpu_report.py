"""The report of a run on GPUs: the machine, verdicts as `imgbuild test` has them, and its end."""

import json
from pathlib import Path
from typing import Any

import chroot_run
import gpu_report
import pytest
from gpu_report import check_name, faults, machine, markdown, suite_result

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


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("test_it", "test_it"),
        ("test_it[docker://first]", "test_it"),
        ("test_it[docker://first-int32]", "test_it[int32]"),
        ("test_it[horovodrun-docker://first-int32]", "test_it[horovodrun-int32]"),
    ],
)
def test_a_check_is_named_without_its_container(test: str, name: str) -> None:
    assert check_name(_check("passed", test=test)) == name


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


def test_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/proc/cpuinfo": "model name\t: Xeon\n", "/proc/meminfo": "MemTotal: 131072000 kB\n"}
    monkeypatch.setattr(gpu_report, "read", files.get)
    found = machine(DRIVER, "Docker")
    assert found["GPUs"] == "NVIDIA H200 (capability 9.0)"
    assert (found["driver"], found["CUDA of the driver"]) == ("580.159.03", "13.0")
    assert found["CPU"].endswith(" x Xeon")
    assert (found["memory"], found["containers"]) == ("131 GB", "Docker")
    none = machine({**DRIVER, "cuda": None, "error": "no libcuda", "devices": []}, "")
    assert (none["GPUs"], none["CUDA of the driver"]) == ("none: no libcuda", "not known")


def test_people_read_each_message_once() -> None:
    checks = [_check("failed", "wrong", f"test_{name}") for name in "ab"]
    checks.append(_check("skipped", "too old"))
    text = markdown({"GPUs": "none"}, _report(suite_result("gpu_runs", checks)))
    assert "| `one` | gpu_runs | failed | 0 | 2 | 1 | 3.8 |" in text
    assert "`one` gpu_runs: `test_a`, `test_b`\n\n````\nwrong\n````" in text
    assert "- `one` gpu_runs skipped: too old" in text


def test_the_machine_is_added_to_what_imgbuild_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = _report(suite_result("gpu_runs", [_check("passed")]))
    (tmp_path / "report.json").write_text(json.dumps(reports))
    monkeypatch.setattr(gpu_report, "asked", lambda _: DRIVER)
    gpu_report.main(tmp_path)
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert written["reports"] == reports
    assert written["machine"]["driver"] == "580.159.03"
    assert "| driver | 580.159.03 |" in (tmp_path / "gpu.md").read_text()


@pytest.mark.parametrize(
    ("name", "is_driver"),
    [
        ("libcuda.so.1", True),
        ("libcuda.so.580.159.03", True),
        ("libnvidia-ptxjitcompiler.so.1", True),
        ("libcudart.so.12", False),
        ("libcudnn.so.8", False),
        ("libc.so.6", False),
    ],
)
def test_only_the_drivers_own_libraries_are_lent(name: str, is_driver: bool) -> None:
    assert bool(chroot_run.DRIVER.fullmatch(name)) is is_driver


def test_the_driver_is_found_where_a_folder_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chroot_run, "FOLDERS", (tmp_path / "a", tmp_path / "b"))
    assert chroot_run.driver_folder() is None
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / chroot_run.LIBRARY).touch()
    assert chroot_run.driver_folder() == tmp_path / "b"
