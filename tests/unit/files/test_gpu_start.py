"""``gpu-start``: what it says about a machine, on a driver that answers as a real one did."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from imgbuild.core.project import Project
from support.gpu_cells import compile_driver, load_check

UNABLE = 3
GIB = 1 << 30
H200 = f"NVIDIA H200,9,0,{139 * GIB},{140 * GIB},0,0"
K80 = f"Tesla K80,3,7,{11 * GIB},{12 * GIB},0,0"
RTX_5090 = f"NVIDIA GeForce RTX 5090,12,0,{31 * GIB},{32 * GIB},0,0"
A100_WITH_MIG = f"NVIDIA A100,8,0,{39 * GIB},{40 * GIB},0,1"
FILES = ("nvidiactl", "nvidia0", "nvidia-uvm")


@dataclass(frozen=True)
class Machine:
    """A machine with a container on it; by default, TensorFlow can use its GPU."""

    gpus: tuple[str, ...] = (H200,)
    driver: str = "580.159.04"
    cuda: int = 13000
    libraries: tuple[str, ...] = ("libcuda.so.1", "libnvidia-ml.so.1")
    files: tuple[str, ...] = FILES
    fault: str = ""
    image: str = "tf-2.18-gpu-debian"
    variables: Mapping[str, str] = field(default_factory=dict)
    address_space: int = resource.RLIM_INFINITY
    replaced: str = ""
    empty_library: bool = False


@dataclass(frozen=True)
class Result:
    code: int
    output: str
    said: str
    asked_cuda: bool


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc, which make check asks nobody to install; CI has it")
    path = tmp_path_factory.mktemp("driver") / "driver.so"
    compile_driver(path)
    return path


@pytest.fixture
def start(tmp_path: Path, project: Project, library: Path) -> Callable[[Machine], Result]:
    """Return a function that starts a command in a container of a machine."""

    def run(machine: Machine) -> Result:
        devices, libraries, log = tmp_path / "dev", tmp_path / "lib", tmp_path / "log"
        for folder in (devices, libraries):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        log.unlink(missing_ok=True)
        for name in machine.files:
            (devices / name).symlink_to(os.devnull)
        if machine.replaced:
            (devices / machine.replaced).unlink()
            (devices / machine.replaced).touch()
        for name in machine.libraries:
            shutil.copy(library, libraries / name)
        if machine.empty_library:
            (libraries / "libcuda.so.1").write_bytes(b"")
        script = tmp_path / "gpu-start"
        facts = project.dockerfiles / machine.image / "gpu.json"
        text = (project.files / "gpu-start" / "gpu_start.py").read_text()
        for old, new in (
            ('"/opt/imgbuild/gpu.json"', repr(str(facts))),
            ('"/dev"', repr(str(devices))),
            ('"/proc/driver/nvidia/version"', repr(str(tmp_path / "no-driver"))),
            ("PATIENCE = 20", "PATIENCE = 1"),
        ):
            assert old in text
            text = text.replace(old, new)
        script.write_text(text)
        made_up = {
            "MADE_UP_VERSION": str(machine.cuda),
            "MADE_UP_DRIVER": machine.driver,
            "MADE_UP_GPUS": ";".join(machine.gpus),
            "MADE_UP_DEVICES": str(devices),
            "MADE_UP_FAULT": machine.fault,
            "MADE_UP_LOG": str(log),
        }
        path = {"PATH": os.defpath, "LD_LIBRARY_PATH": str(libraries)}
        limit = f"ulimit -S -v {machine.address_space >> 10}; " if machine.address_space > 0 else ""
        command = [sys.executable, "-I", "-S", str(script), "sh", "-c", "echo started; exit 7"]
        done = subprocess.run(
            ["sh", "-c", f'{limit}exec "$@"', "sh", *command],
            env={**path, **made_up, **machine.variables},
            capture_output=True,
            text=True,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr, log.exists())

    return run


def test_a_start_on_a_gpu_that_fits_is_silent_and_does_not_ask_cuda(
    start: Callable[[Machine], Result],
) -> None:
    assert start(Machine()) == Result(7, "started\n", "", asked_cuda=False)
    required = Machine(variables={"IMGBUILD_GPU": "require"})
    assert start(required) == Result(7, "started\n", "", asked_cuda=False)


#: Machines on which TensorFlow uses the GPU; the check is silent.
SILENT = {
    "two GPUs": Machine(gpus=(H200, H200)),
    "a variable with a number": Machine(variables={"CUDA_VISIBLE_DEVICES": " 0"}),
    "a variable with two numbers": Machine(
        gpus=(H200, H200), variables={"CUDA_VISIBLE_DEVICES": "1,0"}
    ),
    "a variable with the begin of a UUID": Machine(
        variables={"CUDA_VISIBLE_DEVICES": "GPU-0000000"}
    ),
    "different GPUs by number": Machine(gpus=(K80, H200), variables={"CUDA_VISIBLE_DEVICES": "1"}),
    "no NVML": Machine(libraries=("libcuda.so.1",)),
    "NVML fails": Machine(fault="nvml"),
    "a driver with a newer CUDA than its number says": Machine(driver="470.1", cuda=12050),
    "a high limit of the address space": Machine(address_space=64 * GIB),
    "an instance of MIG": Machine(gpus=(A100_WITH_MIG,)),
    "the oldest driver": Machine(driver="525.60.13", cuda=12000),
    "an old card and old TensorFlow": Machine(gpus=(K80,), image="tf-2.14-gpu-debian"),
}


@pytest.mark.parametrize("machine", SILENT.values(), ids=SILENT)
def test_the_check_is_silent_where_tensorflow_uses_the_gpu(
    start: Callable[[Machine], Result], machine: Machine
) -> None:
    assert start(machine).said == ""


#: Machines on which TensorFlow uses no GPU, and what the check must say.
REFUSED: dict[str, tuple[Machine, tuple[str, ...]]] = {
    "no driver": (Machine(libraries=(), files=()), ("no NVIDIA driver", "--gpus all")),
    "devices without the library": (
        Machine(libraries=()),
        ("device files", "libcuda.so.1", "--gpus all"),
    ),
    "capabilities without compute": (
        Machine(libraries=(), variables={"NVIDIA_DRIVER_CAPABILITIES": "utility"}),
        ("NVIDIA_DRIVER_CAPABILITIES is `utility`", "compute,utility"),
    ),
    "an empty file as library": (Machine(empty_library=True), ("empty file", "mount")),
    "the stub": (Machine(fault="stub"), ("stub", "LD_LIBRARY_PATH")),
    "an old driver": (
        Machine(driver="440.100", cuda=10020, image="tf-2.14-gpu-debian"),
        ("440.100", "450.80.02", "CUDA 11.8", "imgbuild list --driver 440.100"),
    ),
    "a driver that is one release too old": (
        Machine(driver="525.59.01", cuda=12000),
        ("525.59.01", "525.60.13"),
    ),
    "an old driver without NVML": (
        Machine(driver="440.100", cuda=10020, libraries=("libcuda.so.1",)),
        ("CUDA 10.2", "driver 525.60.13", "CUDA 12.0"),
    ),
    "an empty variable": (
        Machine(variables={"CUDA_VISIBLE_DEVICES": ""}),
        ("CUDA_VISIBLE_DEVICES is ``", "hides every GPU"),
    ),
    "a variable of -1": (
        Machine(variables={"CUDA_VISIBLE_DEVICES": "-1"}),
        ("CUDA_VISIBLE_DEVICES is `-1`", "hides every GPU"),
    ),
    "a number that does not exist": (
        Machine(variables={"CUDA_VISIBLE_DEVICES": "9,0"}),
        ("CUDA_VISIBLE_DEVICES is `9,0`", "no GPU `9`", "The only GPU is 0"),
    ),
    "the word all": (
        Machine(gpus=(H200, H200), variables={"CUDA_VISIBLE_DEVICES": "all"}),
        ("no GPU `all`", "The GPUs are 0 to 1"),
    ),
    "a foreign UUID": (
        Machine(variables={"CUDA_VISIBLE_DEVICES": "GPU-bad"}),
        ("no GPU `GPU-bad`",),
    ),
    "a GPU twice": (
        Machine(gpus=(H200, H200), variables={"CUDA_VISIBLE_DEVICES": "0,0"}),
        ("CUDA_VISIBLE_DEVICES is `0,0`", "twice"),
    ),
    "no device file": (
        Machine(files=("nvidiactl", "nvidia-uvm"), libraries=("libcuda.so.1",)),
        ("there is no", "nvidia0", "--gpus all"),
    ),
    "a file instead of a device": (
        Machine(replaced="nvidia0", libraries=("libcuda.so.1",)),
        ("nvidia0 is not a device file",),
    ),
    "a file instead of a device, and a variable": (
        Machine(
            replaced="nvidia0",
            libraries=("libcuda.so.1",),
            variables={"CUDA_VISIBLE_DEVICES": "0"},
        ),
        ("nvidia0 is not a device file",),
    ),
    "no control device": (
        Machine(files=("nvidia0", "nvidia-uvm"), libraries=("libcuda.so.1",)),
        ("nvidiactl is missing",),
    ),
    "no nvidia-uvm": (
        Machine(files=("nvidiactl", "nvidia0")),
        ("nvidia-uvm is missing", "nvidia-modprobe -u"),
    ),
    "nvidia-uvm is a file": (
        Machine(replaced="nvidia-uvm"),
        ("nvidia-uvm is not a device file",),
    ),
    "a limit of the address space": (
        Machine(address_space=8_000_000_000),
        ("limited to 8 GB", "ulimit -v"),
    ),
    "MIG without an instance, and a right variable": (
        Machine(gpus=(A100_WITH_MIG,), fault="100", variables={"CUDA_VISIBLE_DEVICES": "0"}),
        ("divided by MIG",),
    ),
    "MIG without an instance": (
        Machine(gpus=(A100_WITH_MIG,), fault="100"),
        ("divided by MIG", "no instance"),
    ),
    "a reason that only the host knows": (
        Machine(fault="100", libraries=("libcuda.so.1",)),
        ("no GPU that this container may use", "nvidia-smi"),
    ),
    "an NVSwitch without its manager": (
        Machine(fault="802", libraries=("libcuda.so.1",)),
        ("nvidia-fabricmanager",),
    ),
    "libraries of another driver": (
        Machine(fault="803", libraries=("libcuda.so.1",)),
        ("do not match the loaded driver",),
    ),
    "an unknown error": (
        Machine(fault="719", libraries=("libcuda.so.1",)),
        ("cuInit: error 719",),
    ),
    "an old card": (
        Machine(gpus=(K80,), image="tf-2.15-gpu-debian"),
        ("Tesla K80 (compute capability 3.7)", "TensorFlow 2.15", "tf-2.14-gpu-debian"),
    ),
    "a new card": (
        Machine(gpus=(RTX_5090,), image="tf-2.19-gpu-debian"),
        ("RTX 5090 (compute capability 12.0)", "CUDA 12.5", "tf-2.21-gpu-debian"),
    ),
    "a new card that CUDA knows, but not TensorFlow": (
        Machine(gpus=(RTX_5090,), image="tf-2.20-gpu-debian"),
        ("RTX 5090 (compute capability 12.0)", "TensorFlow 2.20", "tf-2.21-gpu-debian"),
    ),
    "a new card and TensorFlow 1": (
        Machine(gpus=(H200,), image="tf-1.15-gpu-ubuntu"),
        ("CUDA 10.0", "tf-2.5-gpu-debian", "tensorflow.compat.v1"),
    ),
    "two cards of one kind": (
        Machine(gpus=(K80, K80), image="tf-2.15-gpu-debian"),
        ("Tesla K80",),
    ),
    "a card that nobody knows yet": (
        Machine(gpus=(f"NVIDIA Next,13,1,{GIB},{GIB},0,0",)),
        ("NVIDIA Next (compute capability 13.1)", "imgbuild list --gpu-model 13.1"),
    ),
    "memory of another process": (
        Machine(gpus=(f"NVIDIA H200,9,0,{3 << 20},{140 * GIB},0,0",)),
        ("other processes hold its memory", "3 of 143360 MiB"),
    ),
    "memory of another process on the chosen one of different GPUs": (
        Machine(
            gpus=(K80, f"NVIDIA H200,9,0,{3 << 20},{140 * GIB},0,0"),
            variables={"CUDA_VISIBLE_DEVICES": "1"},
        ),
        ("NVIDIA H200: other processes hold its memory",),
    ),
    "a prohibited GPU": (
        Machine(gpus=(f"NVIDIA H200,9,0,{GIB},{GIB},2,0",)),
        ("compute mode is `Prohibited`",),
    ),
    "a driver that crashes": (Machine(fault="crash"), ("crashed",)),
    "a driver that hangs": (Machine(fault="hang"), ("did not answer",)),
}


@pytest.mark.parametrize(("machine", "words"), REFUSED.values(), ids=REFUSED)
def test_the_check_says_why_the_gpu_is_not_used(
    start: Callable[[Machine], Result], machine: Machine, words: tuple[str, ...]
) -> None:
    plain = start(machine)
    assert (plain.code, plain.output) == (7, "started\n"), "the command starts all the same"
    for word in words:
        assert word in plain.said
    assert plain.said.count("\n") == 1, "it is one paragraph"
    assert plain.said.count("compute capability") <= 1, "equal GPUs are named once"


@pytest.mark.parametrize("machine", [case for case, _ in REFUSED.values()], ids=REFUSED)
def test_require_ends_the_container(start: Callable[[Machine], Result], machine: Machine) -> None:
    required = start(replace(machine, variables={**machine.variables, "IMGBUILD_GPU": "require"}))
    assert (required.code, required.output) == (UNABLE, "")
    assert "IMGBUILD_GPU" in required.said


#: Machines on which TensorFlow uses a GPU, but the user should know something.
NOTED: dict[str, tuple[Machine, tuple[str, ...]]] = {
    "only PTX": (
        Machine(gpus=(RTX_5090,), image="tf-2.21-gpu-debian"),
        ("RTX 5090 (compute capability 12.0)", "first start", "minutes"),
    ),
    "one of two cards is too old": (
        Machine(gpus=(K80, H200)),
        ("only some of the GPUs", "Tesla K80"),
    ),
    "an entry that does not exist": (
        Machine(variables={"CUDA_VISIBLE_DEVICES": "0,9"}),
        ("CUDA_VISIBLE_DEVICES is `0,9`", "only 1"),
    ),
    "memory of another process on one of two": (
        Machine(gpus=(f"NVIDIA H200,9,0,{3 << 20},{GIB},0,0", H200)),
        ("other processes hold its memory",),
    ),
}


@pytest.mark.parametrize(("machine", "words"), NOTED.values(), ids=NOTED)
def test_the_check_warns_and_require_goes_on(
    start: Callable[[Machine], Result], machine: Machine, words: tuple[str, ...]
) -> None:
    variables = {**machine.variables, "IMGBUILD_GPU": "require"}
    result = start(replace(machine, variables=variables))
    assert (result.code, result.output) == (7, "started\n")
    for word in words:
        assert word in result.said


def test_cuda_is_asked_only_if_nvml_cannot_know(start: Callable[[Machine], Result]) -> None:
    """CUDA numbers different GPUs in an order of its own."""
    chosen = {"CUDA_VISIBLE_DEVICES": "1"}
    assert not start(Machine(gpus=(H200, H200), variables=chosen)).asked_cuda
    assert start(Machine(gpus=(K80, H200), variables=chosen)).asked_cuda
    h100 = H200.replace("H200", "H100")
    assert start(Machine(gpus=(h100, H200), variables=chosen)).asked_cuda, "other memory"


def test_code_that_was_compiled_before_is_not_compiled_again(
    start: Callable[[Machine], Result], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    machine = Machine(
        gpus=(H200,), image="tf-2.12-gpu-debian", variables={"CUDA_CACHE_PATH": str(cache)}
    )
    assert str(cache) in start(machine).said
    (cache / "index").touch()
    assert start(machine).said == ""


@pytest.mark.parametrize("value", ["required", "1", "true", "Off"])
def test_a_value_that_does_not_exist_is_refused(
    start: Callable[[Machine], Result], value: str
) -> None:
    result = start(Machine(variables={"IMGBUILD_GPU": value}))
    assert (result.code, result.output) == (2, "")
    assert f"IMGBUILD_GPU is `{value}`" in result.said


def test_off_asks_nothing(start: Callable[[Machine], Result]) -> None:
    machine = Machine(fault="crash", variables={"IMGBUILD_GPU": "off"})
    assert start(machine) == Result(7, "started\n", "", asked_cuda=False)


@pytest.mark.parametrize("rank", ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"])
def test_one_rank_of_a_node_speaks_if_all_go_on(
    start: Callable[[Machine], Result], rank: str
) -> None:
    machine = Machine(libraries=(), files=())
    first = start(replace(machine, variables={rank: "0"}))
    second = start(replace(machine, variables={rank: "1"}))
    assert "no NVIDIA driver" in first.said
    assert second == replace(first, said="")
    required = {rank: "1", "IMGBUILD_GPU": "require"}
    assert "no NVIDIA driver" in start(replace(machine, variables=required)).said, "it ends"


def test_a_user_who_may_not_open_a_device_is_told_its_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, project: Project
) -> None:
    check = load_check(project)
    for name in FILES:
        (tmp_path / name).symlink_to(os.devnull)
    monkeypatch.setattr(check, "DEVICES", str(tmp_path))
    monkeypatch.setattr(check.os, "access", lambda path, _: not path.endswith("nvidia0"))
    said = check.explain_code(100, None)
    assert "nvidia0" in said
    assert "--group-add" in said


def test_devices_that_root_gets_from_the_driver_are_not_missing(
    start: Callable[[Machine], Result], tmp_path: Path
) -> None:
    """As root, the driver itself makes device files that the container lacks."""
    whole = tmp_path / "whole"
    whole.mkdir()
    for name in FILES:
        (whole / name).symlink_to(os.devnull)
    machine = Machine(files=(), variables={"MADE_UP_DEVICES": str(whole)})
    assert start(machine) == Result(7, "started\n", "", asked_cuda=True)
