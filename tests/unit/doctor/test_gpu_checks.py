"""The findings on GPUs, with an nvidia-smi that a test put on PATH."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import VERSION

from imgbuild.doctor import gpu_checks
from imgbuild.doctor.checks import Finding, Status
from imgbuild.doctor.gpu_checks import check_gpus, find_gpus
from imgbuild.engine.types import EngineVersion
from imgbuild.matrix.gpus import Gpu
from imgbuild.matrix.images import Image

pytest_plugins = ("doctor_fixtures",)
pytestmark = pytest.mark.usefixtures("program")
Program = Callable[..., Path]
WITH_RUNTIME = replace(VERSION, gpus="nvidia")


@pytest.fixture(autouse=True)
def _no_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_checks, "_PROGRAMS", ("nvidia-smi",))
    monkeypatch.setattr(gpu_checks, "CDI_FILES", ())


@pytest.fixture
def found(images: dict[str, Image]) -> Callable[..., list[Finding]]:
    """Return how to check with some images selected."""

    def check(
        *names: str, engine: EngineVersion | None = WITH_RUNTIME, host: str | None = None
    ) -> list[Finding]:
        selected = [images[name] for name in names]
        return [*check_gpus([*images.values()], selected, host, engine)]

    return check


def nvidia(program: Program, *lines: str) -> None:
    program("nvidia-smi", "\n".join(f"echo '{line}'" for line in lines))


def test_no_gpu_is_one_line(found: Callable[..., list[Finding]]) -> None:
    (row,) = found("tf-2.2-gpu-ubuntu")
    assert (row.status, row.fix) == (Status.SKIPPED, None)
    assert "no nvidia-smi; GPU images can be built" in row.detail


#: What is said of a GPU, driver and capability: the state, the images and how they run, and why.
V100 = ("Tesla V100-SXM2-16GB", "390.48", "7.0")
T4 = ("Tesla T4", "418.39", "7.5")
A100 = ("NVIDIA A100-SXM4-40GB", "410.48", "8.0")  # whole, or in parts; no driver helps it
GTX750 = ("GeForce GTX 750 Ti", "535.104.05", "5.0")
K20M = ("Tesla K20m", "[N/A]", "3.5")
GTX1080 = ("GeForce GTX 1080", "470.256.02", "[N/A]")


@pytest.mark.parametrize(
    ("gpu", "status", "how", "why"),
    [
        (V100, Status.FINE, "1.10 to 1.12 run natively", ""),
        (V100, Status.SKIPPED, "1.13 to 2.0 do not run", "too old for CUDA 10.0, which needs 410"),
        (V100, Status.WARNING, "2.1 to 2.3 do not run", "driver 390.48 is too old for CUDA 10.1"),
        (T4, Status.FINE, "1.10 to 2.3 run natively", ""),
        (A100, Status.SKIPPED, "1.10 to 1.12 do not run", "CUDA 9.0 knows no capability above 7.0"),
        (A100, Status.WARNING, "2.1 to 2.3 do not run", "CUDA 10.1 knows no capability above 7.5"),
        (GTX750, Status.WARNING, "1.10 to 2.2 run by PTX", "at the first start"),
        (
            GTX750,
            Status.SKIPPED,
            "2.3, 2.17 to 2.21 do not run",
            "the wheels have no code for capability 5.0",
        ),
        (
            K20M,
            Status.SKIPPED,
            "2.15 to 2.21 do not run",
            "the wheels have no code for capability 3.5",
        ),
        (K20M, Status.WARNING, "1.10 to 2.14 may run", "nvidia-smi does not tell enough"),
        (GTX1080, Status.WARNING, "1.10 to 2.14 may run", "docs/gpus.md has cards by name"),
    ],
)
def test_drivers_and_gpus(  # noqa: PLR0913, PLR0917 - a GPU and what is said of it
    program: Program,
    found: Callable[..., list[Finding]],
    gpu: tuple[str, str, str],
    status: Status,
    how: str,
    why: str,
) -> None:
    nvidia(program, ", ".join(gpu))
    findings = found("tf-2.2-gpu-ubuntu")
    beginning = f"TensorFlow {how} on {gpu[0]}"
    (row,) = (row for row in findings if row.detail.startswith(beginning))
    assert row.status is status
    assert why in row.detail
    assert (row.fix is not None) == ("too old" in why and status is Status.WARNING)


def test_a_cpu_image_has_no_warning(program: Program, found: Callable[..., list[Finding]]) -> None:
    nvidia(program, "NVIDIA A100-SXM4-40GB, 570.86.15, 8.0")
    assert {row.status for row in found("tf-2.2-cpu-debian")} == {Status.FINE, Status.SKIPPED}


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
        ("echo 'No devices were found'; exit 6", "No devices were found"),
        ("echo 'No devices were found'", "No devices were found"),
        ("exit 9", "exit code 9"),
        ("echo 'Unable to determine, GPU is lost, reboot'; exit 15", "GPU is lost"),
    ],
)
def test_a_driver_that_does_not_work(
    program: Program, found: Callable[..., list[Finding]], script: str, problem: str
) -> None:
    program("nvidia-smi", script)
    (row,) = found("tf-2.2-gpu-ubuntu")
    assert row.status is Status.WARNING
    assert problem in row.detail
    assert "dmesg" in str(row.fix)


def test_a_driver_that_hangs(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_checks, "SECONDS", 0.2)
    program("nvidia-smi", "while :; do :; done")
    assert find_gpus() == ([], "no answer within 0 s")


def test_a_driver_that_cannot_even_be_killed(
    found: Callable[..., list[Finding]], monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    monkeypatch.setattr(gpu_checks, "SECONDS", 0.01)
    monkeypatch.setattr(gpu_checks, "find_gpus", lambda: never.wait() and ([], ""))
    (row,) = found("tf-2.2-gpu-ubuntu")
    never.set()
    assert row.detail == "nvidia-smi lists none: it did not answer in time"


def test_gpus_in_containers(
    program: Program,
    found: Callable[..., list[Finding]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    nvidia(program, "Tesla T4, 470.82.01, 7.5")
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "ubuntu"})
    monkeypatch.setattr("os.geteuid", lambda: 0)
    row = found(engine=VERSION)[0]
    assert (row.what, row.status) == ("GPUs in containers", Status.WARNING)
    assert "no nvidia-ctk" in row.detail
    assert str(row.fix).startswith("apt-get install -y nvidia-container-toolkit (from where: https")
    program("nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.17.8'; echo 'commit: f202'")
    (tmp_path / "nvidia.yaml").touch()
    monkeypatch.setattr(gpu_checks, "CDI_FILES", (f"{tmp_path}/*.yaml",))
    row = found(engine=VERSION)[0]
    assert f"(NVIDIA Container Toolkit CLI version 1.17.8, {tmp_path}/nvidia.yaml)" in row.detail
    assert str(row.fix).startswith("nvidia-ctk runtime configure")
    ways = ((WITH_RUNTIME, "NVIDIA's runtime"), (replace(VERSION, gpus="cdi"), "CDI"))
    for engine, way in ways:
        row = found(engine=engine)[0]
        assert (row.status, row.fix) == (Status.FINE, None)
        assert f"by {way} (" in row.detail
    assert found(engine=None)[0].status is Status.WARNING


def test_an_engine_on_another_machine(
    program: Program, found: Callable[..., list[Finding]]
) -> None:
    nvidia(program, "Tesla T4, 470.82.01, 7.5")
    (row,) = found("tf-2.2-gpu-ubuntu", host="tcp://build:2375")
    assert row.status is Status.SKIPPED
    assert row.detail.endswith("the engine gives GPUs by NVIDIA's runtime, on another machine")
