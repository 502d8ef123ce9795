"""Compare `imgbuild list`, the check at start and TensorFlow for each GPU and driver.

TensorFlow's own loader and CUDA's run time answer in a container with a made-up driver. The answers
of every image are in tests/data/gpu_cells.json.
"""

import json
import subprocess
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from gpu_libraries import soname
from packaging.version import Version

from imgbuild.core.project import Project
from imgbuild.matrix.gpus import GENERATIONS, KernelSupport, compatibility
from imgbuild.matrix.images import Image
from support.checkout import ROOT

ANSWERS = ROOT / "tests" / "data" / "gpu_cells.json"
DRIVER = ROOT / "tests" / "support" / "made_up_driver.c"
PROGRAM = ROOT / "tests" / "gpu" / "loader_cells.py"
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
DEVICES = ("nvidiactl", "nvidia0", "nvidia-uvm")
#: Drivers, with the newest CUDA that each knows, as cuDriverGetVersion gives it: the oldest driver
#: of each CUDA of the matrix, those before them, and some newer ones. Source: NVIDIA, CUDA Toolkit
#: Release Notes, "CUDA Toolkit and Corresponding Driver Versions".
DRIVERS = {
    "375.26": 8000,
    "384.81": 9000,
    "396.26": 9020,
    "410.48": 10000,
    "418.39": 10010,
    "440.33": 10020,
    "450.80.02": 11000,
    "470.256.02": 11040,
    "520.61.05": 11080,
    "525.60.13": 12000,
    "535.183.01": 12020,
    "580.159.04": 13000,
}
#: The first TensorFlow that says if it would compile PTX for a GPU.
SAYS_PTX = Version("2.6")
_MEMORY = 80 << 30  # bytes


class Answers(NamedTuple):
    """The answers of an image.

    - ``loader`` maps a capability to a word of tests/gpu/loader_cells.py
    - ``runtime`` maps the CUDA that a driver knows to whether CUDA's run time accepts the driver
    """

    tensorflow: str
    cuda: str
    loader: Mapping[str, str]
    runtime: Mapping[str, bool]


def compile_driver(path: Path) -> None:
    """Compile the made-up driver, which is `libcuda.so.1` and `libnvidia-ml.so.1` in one."""
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", path, DRIVER], check=True)


def driver_options(driver: Path) -> list[str]:
    """Return the options of `docker run` that give a container the made-up driver."""
    folder = "/usr/lib/x86_64-linux-gnu"
    return [
        *(f"--volume=/dev/null:/dev/{name}" for name in DEVICES),
        *(f"--volume={driver}:{folder}/{name}:ro" for name in LIBRARIES),
        "--env=MADE_UP_VERSION=13000",
        "--env=MADE_UP_DEVICES=/dev",
    ]


def ask_image(image: Image, reference: str, driver: Path, docker: list[str]) -> Answers:
    """Ask TensorFlow in an image of the engine; ``docker`` is the client with its options."""
    program = f"--volume={PROGRAM}:/{PROGRAM.name}:ro"
    options = [*driver_options(driver), program, "--env=IMGBUILD_GPU=off"]
    cuda = image.version_of("cuda")
    words = (
        soname("cudart", cuda),
        " ".join(map(str, sorted({*DRIVERS.values()}))),
        " ".join(generation.capability for generation in GENERATIONS),
    )
    command = [*docker, "run", "--rm", "--pull=never", *options, reference]
    done = subprocess.run(
        [*command, "python", f"/{PROGRAM.name}", *words], stdout=subprocess.PIPE, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return Answers(image.tensorflow, cuda, found["loader"], found["runtime"])


def read_answers() -> dict[str, Answers]:
    """Return the recorded answers by the name of the image."""
    recorded = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return {name: Answers(**answers) for name, answers in recorded.items()}


def write_answers(answers: Mapping[str, Answers]) -> None:
    rows = {name: one._asdict() for name, one in answers.items()}
    ANSWERS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def load_check(project: Project) -> ModuleType:
    """Return the check at container start as a module."""
    path = project.files / "gpu-start" / "gpu_start.py"
    spec = spec_from_file_location("gpu_start", path)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_facts(image: Image, project: Project) -> dict[str, Any]:
    """Return what the check at start knows of an image."""
    text = (project.dockerfiles / image.name / "gpu.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts


def check_cells(image: Image, project: Project) -> list[str]:
    """Return the cells in which `imgbuild list` and the check at start differ, a sentence each."""
    check, facts = load_check(project), read_facts(image, project)
    differences = []
    for generation in GENERATIONS:
        for driver in DRIVERS:
            support, reason = compatibility(image, generation.capability, driver)
            verdict = _judge(check, facts, generation.capability, driver)
            is_usable = support is not KernelSupport.NOTHING
            is_silent = support is KernelSupport.NATIVE
            if (verdict.usable, verdict.text == "") != (is_usable, is_silent):
                differences.append(
                    f"{image.name}, {generation.capability}, driver {driver}: the list says "
                    f"{support} ({reason}), the check says {verdict.text!r}"
                )
    return differences


def loader_differences(image: Image, answers: Answers) -> list[str]:
    """Return the cells in which `imgbuild list` and TensorFlow differ, a sentence each."""
    differences = []
    for generation in GENERATIONS:
        for driver, cuda in DRIVERS.items():
            listed, reason = compatibility(image, generation.capability, driver)
            said = answers.loader[generation.capability]
            possible = {KernelSupport.NOTHING}
            if answers.runtime[str(cuda)]:
                possible = _possible_support(image, generation.capability, said)
            if listed not in possible:
                differences.append(
                    f"{image.name}, {generation.capability}, driver {driver}: the list says "
                    f"{listed} ({reason}), TensorFlow {said}"
                )
    return differences


def _possible_support(image: Image, capability: str, said: str) -> set[KernelSupport]:
    """Return the kinds of support for a GPU of which TensorFlow's loader said this.

    The loader accepts more than can work. It does not check that cuBLAS and cuDNN have code for the
    GPU, nor that the wheel's PTX is for this GPU or an older one. TensorFlow 2.5 does not say
    whether it would compile PTX.
    """
    assert image.cuda
    own, newest = _numbers(capability), _numbers(image.cuda.newest)
    if said == "nothing":
        return {KernelSupport.NOTHING}
    has_ptx = own <= newest and any(_numbers(ptx) <= own for ptx in image.wheel.ptx)
    compiled = KernelSupport.PTX if has_ptx else KernelSupport.NOTHING
    if said == "PTX":
        return {compiled}
    silent = Version(image.tensorflow) < SAYS_PTX
    return {KernelSupport.NATIVE, compiled} if silent else {KernelSupport.NATIVE}


def _judge(check: ModuleType, facts: dict[str, Any], capability: str, driver: str) -> Any:
    old = check.explain_old(driver, DRIVERS[driver], facts)
    if old:
        return check.refuse(old)
    gpu = check.Gpu("GPU", "GPU-1", _numbers(capability), _MEMORY, _MEMORY, 0)
    return check.judge([gpu], facts)


def _numbers(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)
