"""Suite `gpu_loadable`: every library that the wheels ask for loads, in the pinned version.

TensorFlow that does not find one only says so and computes on the CPU. Nothing here needs a GPU;
that something runs is `gpu_runs`. TensorRT is not asked for: these images have none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from docker_command import docker
from gpu_libraries import NCCL, driver_cuda, is_optional, version_number
from gpu_libraries import soname as named
from gpu_machine import hiding
from image_files import image_files, must_be_none, toolkit
from image_labels import image_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from container import Container, Ran
    from expectation import Expectation
    from lab import Lab

SECONDS = 120
#: The exit code of a container that requires a GPU.
UNABLE = 3
#: As a driver gives it; no GPU has the capability.
NEWEST_CUDA, OLDEST_CUDA, NO_GPU = "99000", "1000", "1.0"
#: The functions of TensorFlow's loader: what each image needs, and what no image has.
ALWAYS_OPENED = (
    *("GetCudaRuntimeDsoHandle", "GetCublasDsoHandle", "GetCufftDsoHandle", "GetCusolverDsoHandle"),
    *("GetCusparseDsoHandle", "GetCudnnDsoHandle", "GetCuptiDsoHandle"),
    "MaybeTryDlopenGPULibraries",
)
#: The driver's own two, TensorRT's, and since 2.20 NVSHMEM, without which TensorFlow uses all GPUs:
#: MaybeTryDlopenGPULibraries does not ask for it.
NOT_IN_THE_IMAGE = (
    *("GetCudaDriverDsoHandle", "GetNvmlDsoHandle"),
    *("GetNvInferDsoHandle", "GetNvInferPluginDsoHandle", "GetNvshmemDsoHandle"),
)
CACHED = re.compile(
    r"^\t(lib(?:cu(?:blas|d|fft|pti|rand|s)|nccl|nv)\S+) \(.*\) => (\S+)$", re.MULTILINE
)
#: Where the loader looks: what each line says, then the variable.
LOOKS_IN = 'cat /etc/ld.so.conf /etc/ld.so.conf.d/*; echo "$LD_LIBRARY_PATH" | tr : "\\n"'


@pytest.fixture(scope="module")
def needs(container: Container) -> Ran:
    """Read which libraries TensorFlow's and Horovod's own ask the loader for."""
    return container.program("elf_needs.py", "tensorflow*", "horovod", seconds=SECONDS)


@pytest.fixture(scope="module")
def versions(container: Container, expect: Expectation) -> Ran:
    """Ask CUDA's run time, cuDNN and NCCL for their versions."""
    cudart = named("cudart", expect.pins["cuda"])
    cudnn = f"libcudnn.so.{expect.pins['cudnn'].partition('.')[0]}"
    return container.program("gpu_versions.py", cudart, cudnn, NCCL, seconds=SECONDS)


@pytest.fixture(scope="module")
def environment(pytestconfig: pytest.Config) -> dict[str, str]:
    """Read the variables of the image; into the container's own the engine writes."""
    pairs = image_config(pytestconfig.getoption("--hosts"))["Env"] or []
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def test_library_loads(
    container: Container, soname: str, record_property: Callable[[str, object], None]
) -> None:
    """One library that TensorFlow opens while it runs is found, whichever file it is."""
    found = container.program("shared_libraries.py", soname, seconds=SECONDS).json[soname]
    record_property("path", found["path"])
    assert found["error"] is None, found["error"]


def test_everything_that_the_wheels_name_loads(
    container: Container, needs: Ran, record_property: Callable[[str, object], None]
) -> None:
    """All libraries that the wheels' headers name load, but the driver's and TensorRT's."""
    asked = needs.json["needed"]
    wanted = sorted(name for name in asked if not is_optional(name))
    assert wanted, f"{needs.json['files']} libraries of the wheels ask for nothing"
    found = container.program("shared_libraries.py", *wanted, seconds=SECONDS).json
    record_property("paths", " ".join(str(one["path"]) for one in found.values()))
    wrong = unloadable(found, asked)
    assert not wrong, "\n".join(wrong)


@pytest.mark.cuda_from("index")
def test_tensorflow_opens_every_library_itself(
    container: Container, record_property: Callable[[str, object], None]
) -> None:
    """TensorFlow's own loader gives a handle for each library, but the driver's and TensorRT's.

    And its check before it looks for GPUs says that none is missing.
    """
    found = container.program("tensorflow_loader.py", seconds=SECONDS).json
    record_property("loaded", " ".join(found["loaded"]))
    missing = refused(found["opened"])
    assert not missing, f"TensorFlow cannot open {', '.join(missing)}: it would use no GPU"


@pytest.mark.cuda_from("index")
def test_every_library_is_there_once(container: Container) -> None:
    """No second CUDA is beside the first: some of its libraries have the same names."""
    found = repeated(container.run("/sbin/ldconfig", "-p", seconds=30).output)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("library", ["cuda", "cudnn", "nccl"])
def test_library_says_the_pinned_version(library: str, versions: Ran, expect: Expectation) -> None:
    """The library gives itself the version of its pin; the suite `pins` asks its file's name."""
    found, pin = versions.json[library], expect.pins[library]
    assert says(found, version_number(library, pin)), f"{library}: pinned {pin}, it says {found}"


def test_no_folder_of_stubs_is_searched(container: Container) -> None:
    """The loader looks in no folder of stubs: what it found there would hide the driver."""
    searched = container.run("sh", "-c", LOOKS_IN, seconds=30).output.splitlines()
    found = stub_folders(searched)
    assert not found, f"the loader searches {', '.join(found)}"


def test_environment_hides_no_gpu(environment: dict[str, str]) -> None:
    """No variable of the image keeps a GPU, or the driver's library, from TensorFlow."""
    found = hiding(environment)
    assert not found, f"the image sees no GPU, or not all: {', '.join(found)}"


def test_environment_requires_the_pinned_cuda(
    environment: dict[str, str], expect: Expectation
) -> None:
    """A container starts where the driver runs the image's CUDA, and nowhere else."""
    wanted = f"cuda>={driver_cuda(expect.pins['cuda'])}"
    found = environment.get("NVIDIA_REQUIRE_CUDA")
    assert found == wanted, f"NVIDIA_REQUIRE_CUDA is {found}, not {wanted}"


def test_no_toolkit(pytestconfig: pytest.Config) -> None:
    """The image has run-time libraries: no compiler, header or static library of CUDA."""
    must_be_none(toolkit(image_files(pytestconfig.getoption("--hosts"))))


@pytest.mark.cuda_from("apt")
def test_pinned_packages_are_held(container: Container, expect: Expectation) -> None:
    """An `apt-get upgrade` leaves them alone: the next cuBLAS breaks TensorFlow."""
    held = container.run("apt-mark", "showhold", seconds=30).output.split()
    free = sorted(expect.held.keys() - set(held))
    assert not free, f"not held: {', '.join(free)}"


@pytest.mark.cuda_from("apt")
def test_pinned_packages_are_installed(container: Container, expect: Expectation) -> None:
    """Each package of CUDA, cuDNN and NCCL has exactly the pinned version."""
    show = ("dpkg-query", "--show", "--showformat=${Package}=${Version}\\n")
    found = container.run(*show, seconds=30).output.split()
    wanted = [f"{name}={version}" for name, version in expect.held.items()]
    missing = sorted(set(wanted) - set(found))
    assert not missing, f"pinned, but not installed: {', '.join(missing)}"


def test_the_check_at_start_knows_the_image(container: Container, expect: Expectation) -> None:
    """The facts that the check compares a GPU with are the matrix's and the wheel's."""
    found = container.program("gpu_start_facts.py", seconds=SECONDS).json
    facts, gpu = found["facts"], expect.gpu
    wanted = {"tensorflow": expect.tensorflow, "cuda": expect.pins["cuda"]}
    wanted |= {"driver": gpu["driver"], "newest": gpu["newest"]}
    assert {name: facts[name] for name in wanted} == wanted
    wrong = contradictions(facts, found["capabilities"])
    assert not wrong, f"the wheel and gpu.json contradict each other: {', '.join(wrong)}"


def test_the_check_at_start_says_what_is_wrong(container: Container) -> None:
    """The entry point's check names the fault; the command starts all the same, if it may.

    The fault is an empty file as the driver's library; it also hides the one of a real driver.
    """
    folder = container.fresh_folder()
    container.run("touch", f"{folder}/libcuda.so.1", seconds=10)
    library = f"LD_LIBRARY_PATH={folder}"
    command = ("/usr/local/bin/as-user", "sh", "-c", "exit 7")
    warned = container.run("env", library, *command, seconds=30)
    assert warned.ended_with == 7
    assert "libcuda.so.1 is an empty file" in warned.stderr
    required = container.run("env", library, "IMGBUILD_GPU=require", *command, seconds=30)
    assert required.ended_with == UNABLE
    off = container.run("env", library, "IMGBUILD_GPU=off", *command, seconds=30)
    assert (off.ended_with, off.stderr) == (7, "")


def test_the_check_at_start_needs_no_rights(lab: Lab) -> None:
    """A user without a name, on a read-only image, is told the same: there is no GPU."""
    own = ("--read-only", "--tmpfs=/tmp", "--user=12345:12345")
    # Some engines add the driver to every container.
    no_gpu = ("--env=NVIDIA_VISIBLE_DEVICES=void", "--env=IMGBUILD_GPU=require")
    name = lab.bare("required", *own, *no_gpu, command=("true",))
    assert docker("wait", name).strip() == str(UNABLE)


def test_docker_exec_makes_no_check(container: Container) -> None:
    """`docker exec` starts a program without the entry point, and so without the check."""
    started = container.run("env", "IMGBUILD_GPU=require", "true", seconds=30)
    assert (started.ended_with, started.stderr) == (0, "")


def test_the_check_at_start_is_silent_on_gpus_that_fit(container: Container) -> None:
    """It says nothing of a GPU that the wheel has machine code for, and refuses one of no wheel."""
    facts = container.program("gpu_start_facts.py", seconds=SECONDS).json["facts"]
    program = ("gpu_start_verdicts.py", NEWEST_CUDA, *facts["native"], NO_GPU)
    found = container.program(*program, seconds=SECONDS).json
    text, usable = found.pop(NO_GPU)
    assert "no code for it" in text
    assert not usable
    assert found == {name: ["", True] for name in facts["native"]}
    old = container.program("gpu_start_verdicts.py", OLDEST_CUDA, NO_GPU, seconds=SECONDS).json
    assert "Update the driver" in old[NO_GPU][0]


def contradictions(facts: dict[str, Any], words: list[str] | None) -> list[str]:
    """Return the kinds of code that only the facts or only the wheel's own words have.

    The wheel calls code by its PTX, compute_80, where it has machine code, too. None: it says none.
    """
    if words is None:
        return []
    said = {f"sm_{word.partition('_')[2]}" for word in words}
    said |= {word for word in words if word.startswith("compute_")}
    known = {f"sm_{one.replace('.', '')}" for one in facts["native"]}
    known |= {f"compute_{one.replace('.', '')}" for one in facts["ptx"]}
    return sorted(said ^ known)


def refused(opened: dict[str, bool]) -> list[str]:
    """Return what was not opened, though the image has to have it, and what was never asked for."""
    wanted = {*ALWAYS_OPENED, *(name for name in opened if name not in NOT_IN_THE_IMAGE)}
    return sorted(name for name in wanted if not opened.get(name))


def repeated(cache: str) -> list[str]:
    """Return a line a library of NVIDIA that the loader's cache has from more than one folder."""
    places: dict[str, list[str]] = {}
    for name, path in CACHED.findall(cache):
        places.setdefault(name, []).append(path)
    return [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]


def unloadable(found: dict[str, Any], asked: dict[str, list[str]]) -> list[str]:
    """Return what did not load, in the loader's words, and one file that asks for it."""
    return [
        f"{one['error']} (asked for by {asked[name][0]})"
        for name, one in found.items()
        if one["error"] is not None
    ]


def says(found: dict[str, Any], wanted: int) -> bool:
    """Return whether a library gave this version, or could not without a driver.

    CUDA's run time before 12 looks for a driver first, and may answer with an error; that it is
    the pinned one is then told by its file's name alone.
    """
    version, status = found["version"], found["status"]
    return bool(version == wanted or (version == 0 and status != 0))


def stub_folders(searched: list[str]) -> list[str]:
    """Return the folders of stubs among those that are searched."""
    return [line for line in searched if "stubs" in line and not line.startswith("#")]
