"""The findings on GPUs, with an nvidia-smi that a test put on PATH."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.doctor import gpu_checks
from imgbuild.doctor.checks import Finding, Status
from imgbuild.doctor.gpu_checks import check_gpus
from imgbuild.engine import gpus
from imgbuild.engine.gpus import find_gpus
from imgbuild.engine.types import EngineVersion
from imgbuild.matrix.gpus import Gpu
from imgbuild.matrix.images import Image
from support.fake_engine import VERSION

pytest_plugins = ("support.doctor_fixtures",)
pytestmark = pytest.mark.usefixtures("program")
Program = Callable[..., Path]
Found = Callable[..., list[Finding]]
WITH_RUNTIME, WITH_CDI = replace(VERSION, gpus="nvidia"), replace(VERSION, gpus="cdi")


@pytest.fixture(autouse=True)
def _no_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_PROGRAMS", ("nvidia-smi",))
    monkeypatch.setattr(gpu_checks, "CDI_FILES", ())


@pytest.fixture
def found(images: dict[str, Image]) -> Found:
    """Return how to check with some images selected."""

    def check(
        *names: str, engine: EngineVersion | None = WITH_RUNTIME, host: str | None = None
    ) -> list[Finding]:
        selected = [images[name] for name in names]
        return [*check_gpus([*images.values()], selected, host, engine)]

    return check


def nvidia(program: Program, *lines: str) -> None:
    program("nvidia-smi", "\n".join(f"echo '{line}'" for line in lines))


def test_no_gpu_is_one_line(found: Found) -> None:
    (row,) = found("tf-2.2-gpu-ubuntu")
    assert (row.status, row.fix) == (Status.SKIPPED, None)
    assert "no nvidia-smi; GPU images can be built" in row.detail


def test_a_gpu_of_a_machine_with_an_arm_processor(program: Program, found: Found) -> None:
    nvidia(program, "NVIDIA GH200 480GB, 580.82, 9.0")
    rows = [row for row in found("tf-2.18-gpu-debian") if row.what == "GPU images"]
    assert [row.status for row in rows] == [Status.WARNING]
    assert "No image can use NVIDIA GH200 480GB" in rows[0].detail


def test_images_that_do_alike_on_a_gpu_are_one_finding(program: Program, found: Found) -> None:
    """A warning for the selected image alone; matrix/test_gpus.py has which images run on what."""
    nvidia(
        program,
        "Tesla V100-SXM2-16GB, 390.48, 7.0",
        "GeForce GTX 750 Ti, 535.104.05, 5.0",
        "Tesla K20m, [N/A], 3.5",
        "GeForce GTX 1080, 470.256.02, [N/A]",
    )
    rows = {row.detail.removeprefix("TensorFlow "): row for row in found("tf-2.2-gpu-ubuntu")}
    for beginning, status, why in (
        ("1.10 to 1.12 run natively on Tesla V100", Status.FINE, ""),
        ("1.13 to 2.0 do not run on Tesla V100", Status.SKIPPED, "too old for CUDA 10.0"),
        ("2.1 to 2.3 do not run on Tesla V100", Status.WARNING, "too old for CUDA 10.1"),
        ("1.10 to 2.2 run through PTX on GeForce GTX 750", Status.WARNING, "at the first start"),
        ("2.3, 2.17 to 2.21 do not run on GeForce GTX 750", Status.SKIPPED, "capability 5.0"),
        ("1.10 to 2.14 may run on Tesla K20m", Status.WARNING, "nvidia-smi does not report enough"),
        ("1.10 to 2.14 may run on GeForce GTX 1080", Status.WARNING, "docs/gpus.md"),
    ):
        (detail,) = (detail for detail in rows if detail.startswith(beginning))
        assert (rows[detail].status, why in detail) == (status, True), detail
    (upgraded,) = (detail for detail, row in rows.items() if row.fix and "driver" in row.fix)
    assert upgraded.startswith("2.1 to 2.3 do not run on Tesla V100")
    rows_of_cpu = found("tf-2.2-cpu-debian", engine=WITH_RUNTIME)
    assert {row.status for row in rows_of_cpu} == {Status.FINE, Status.SKIPPED}


def test_an_old_program_does_not_know_the_capability(program: Program) -> None:
    program(
        "nvidia-smi",
        """case $1 in
        *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;;
        *) echo 'Tesla P100-PCIE-16GB, 418.39';;
        esac""",
    )
    assert find_gpus() == ([Gpu("Tesla P100-PCIE-16GB", "418.39")], "")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "mismatch"),
        ("echo 'No devices were found'", "No devices were found"),
        ("exit 9", "exit code 9"),
        ("echo 'Unable to determine, GPU is lost, reboot'; exit 15", "GPU is lost"),
    ],
)
def test_a_driver_that_does_not_work(
    program: Program, found: Found, script: str, problem: str
) -> None:
    program("nvidia-smi", script)
    (row,) = found("tf-2.2-gpu-ubuntu")
    assert row.status is Status.WARNING
    assert problem in row.detail
    assert "dmesg" in str(row.fix)


def test_a_driver_that_hangs_or_cannot_even_be_killed(
    program: Program, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "SECONDS", 0.2)
    monkeypatch.setattr(gpu_checks, "SECONDS", 0.2)
    program("nvidia-smi", "while :; do :; done")
    assert find_gpus() == ([], "no answer within 0 s")
    never = threading.Event()
    monkeypatch.setattr(gpu_checks, "find_gpus", lambda: never.wait() and ([], ""))
    (row,) = found("tf-2.2-gpu-ubuntu")
    never.set()
    assert row.detail == "nvidia-smi lists no GPU: it did not answer in time"


def test_gpus_in_containers(
    program: Program, found: Found, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nvidia(program, "Tesla T4, 470.82.01, 7.5")
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "ubuntu"})
    monkeypatch.setattr("os.geteuid", lambda: 0)
    row = found(engine=VERSION)[0]
    assert (row.what, row.status) == ("GPUs in containers", Status.WARNING)
    assert str(row.fix).startswith("apt-get install -y nvidia-container-toolkit")
    program("nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.17.8'; echo 'commit: f202'")
    (tmp_path / "nvidia.yaml").touch()
    monkeypatch.setattr(gpu_checks, "CDI_FILES", (f"{tmp_path}/*.yaml",))
    row = found(engine=VERSION)[0]
    assert f"(NVIDIA Container Toolkit CLI version 1.17.8, {tmp_path}/nvidia.yaml)" in row.detail
    assert str(row.fix).startswith("nvidia-ctk runtime configure")
    for engine, way in ((WITH_RUNTIME, "NVIDIA's runtime"), (WITH_CDI, "CDI")):
        row = found(engine=engine)[0]
        assert (row.status, row.fix) == (Status.FINE, None)
        assert f"through {way} (" in row.detail
    assert found(engine=None)[0].status is Status.WARNING
    (row,) = found("tf-2.2-gpu-ubuntu", host="tcp://build:2375")
    assert row.status is Status.SKIPPED
    assert row.detail.endswith("on another machine")
