"""Read one component's version from the running image, a function each."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from gpu_libraries import soname
from mpi import mpi_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from container import Container, Ran
    from expectation import Expectation

# The libraries that tell the versions: libcudart.so.10.1, libcudnn.so.7, libnccl.so.2.
GPU_LIBRARIES = {"cuda": "libcudart.so", "cudnn": "libcudnn.so", "nccl": "libnccl.so"}
MODULES = ("tensorflow", "tensorboard", "horovod")
PREFIX = "/opt/python"

# What these print is shorter than the version they were released under, or the pin may be shorter
# than what they print: Intel MPI 2018.3.222 says 2018.3, Miniconda 4.7.12.1 says 4.7.12, the pin
# CUDA 10.1 means any 10.1.x.
COARSE = frozenset({"cuda", "cudnn", "nccl", "miniconda", "mpi"})


@dataclass(frozen=True)
class Image:
    """The running image, with what its Python said of itself, asked once."""

    container: Container
    python: Ran
    expect: Expectation


def python_version(image: Image) -> str:
    """Return the version of the `python` on PATH."""
    return str(image.python.json["python"])


def module_version(image: Image, name: str) -> str:
    """Return the version that an imported module gives itself."""
    module = image.python.json["modules"][name]
    if module["error"] is not None:
        pytest.fail(f"import {name} fails in the image: {module['error']}", pytrace=False)
    return str(module["version"])


def mpirun_version(image: Image) -> str:
    """Return the version of the MPI whose `mpirun` is on PATH."""
    text = image.container.run("mpirun", "--version", seconds=30).output
    flavour = image.expect.mpi
    version = mpi_version(flavour, text)
    if version is None:
        pytest.fail(f"mpirun is not {flavour}'s; it says: {text.strip()}", pytrace=False)
    return version


def git_version(image: Image) -> str:
    """Return what `git version 2.39.5` says last."""
    return _last_word(image.container.run("git", "--version", seconds=30))


def conda_version(image: Image) -> str:
    """Return what `conda 4.7.12` says last."""
    return _last_word(image.container.run("conda", "--version", seconds=60))


def os_release(container: Container) -> dict[str, str]:
    """Return /etc/os-release, whose values are quoted as in a shell."""
    lines = container.run("cat", "/etc/os-release", seconds=10).output.splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key: "".join(shlex.split(value)) for key, value in pairs}


def os_version(image: Image) -> str:
    """Return the release of the distribution: 12, 18.04."""
    return os_release(image.container).get("VERSION_ID", "none")


def gpu_library_version(image: Image, component: str) -> str:
    """Return the version of the library that the loader chooses: its wheel's, or in its file name.

    It is asked for by the name that the pin gives it, as TensorFlow asks: an image with another
    CUDA fails with the loader's own words.
    """
    stem, pin = GPU_LIBRARIES[component], image.expect.pins[component]
    name = soname("cudart", pin) if component == "cuda" else f"{stem}.{pin.partition('.')[0]}"
    library = image.container.program("shared_libraries.py", name, seconds=30).json[name]
    if library["wheel"]:
        return str(library["wheel"])
    found = re.search(rf"{re.escape(stem)}\.(\d+(?:\.\d+)+)$", library["path"] or "")
    if found is None:
        pytest.fail(f"no version in the file name of {component}: {library}", pytrace=False)
    return found[1]


def reader(component: str) -> Callable[[Image], str]:
    """Return the function that reads this component; fails the test where there is none."""
    if component in MODULES:
        return lambda image: module_version(image, component)
    if component in GPU_LIBRARIES:
        return lambda image: gpu_library_version(image, component)
    if component not in PROGRAMS:
        pytest.fail(f"the suite cannot read the version of {component!r}", pytrace=False)
    return PROGRAMS[component]


def same_version(component: str, pin: str, found: str) -> bool:
    """Return whether an image with `found` keeps its promise of `pin`.

    Exact, but for the COARSE components: there the shorter of the two must begin the longer.

    >>> same_version("git", "2.39", "2.39.5"), same_version("cuda", "10.1", "10.1.243")
    (False, True)
    >>> same_version("cuda", "10.1", "10.13.1")
    False
    """
    if component not in COARSE:
        return pin == found
    pairs = zip(pin.split("."), found.split("."), strict=False)
    return all(left == right for left, right in pairs)


PROGRAMS: dict[str, Callable[[Image], str]] = {
    "python": python_version,
    "mpi": mpirun_version,
    "git": git_version,
    "miniconda": conda_version,
    "os": os_version,
}


def _last_word(ran: Ran) -> str:
    return ran.output.split()[-1]
