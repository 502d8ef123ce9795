"""Whether this machine's driver and GPUs can run what is in the image; if not, exactly why not.

And whether the image's environment lets them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_libraries import driver_cuda
from packaging.version import Version
from skip_reasons import driver_too_old, gpu_too_new, gpu_too_old, no_driver

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What cuInit answers without a GPU (CUresult, cuda.h); NVIDIA's stubs before CUDA 10.2 answer -1.
CU_INIT = {-1: "a stub", 34: "a stub", 100: "no device", 803: "not of the kernel module's version"}


@dataclass(frozen=True)
class Needs:
    """What the image needs: its CUDA, and the least and the most of driver and GPU."""

    cuda: str
    driver: str
    newest: str
    oldest: str


def unusable(found: dict[str, Any], needs: Needs, no_gpu: str | None) -> str | None:
    """Return why nothing can be run; None where at least one GPU can be used.

    `found` is what programs/driver.py printed, `no_gpu` why the engine gave none. The driver's age
    comes first: an engine may refuse its GPUs for no other reason.
    """
    kernel = found["kernel"]
    if kernel and Version(kernel) < Version(needs.driver):
        return driver_too_old(kernel, needs.driver)
    if no_gpu or found["error"]:
        return no_driver(no_gpu or found["error"])
    if found["init"] != 0:
        meaning = CU_INIT.get(found["init"], "no further word")
        return no_driver(f"cuInit of libcuda.so.1 answers {found['init']} ({meaning})")
    # Beside a driver that is new enough, a library that is older is not the driver's.
    if not kernel and found["cuda"] and found["cuda"] < cuda_number(driver_cuda(needs.cuda)):
        return driver_too_old(f"CUDA {cuda_version(found['cuda'])}", needs.driver)
    faults = device_faults(found["devices"], needs)
    if not faults:
        return no_driver("it has no device")
    return None if None in faults else faults[0]


def device_faults(devices: list[dict[str, str]], needs: Needs) -> list[str | None]:
    """Return why each device cannot be used, in their order; None for one that can."""
    faults: list[str | None] = []
    for number, device in enumerate(devices):
        which = f"device {number} of {len(devices)}: " if len(devices) > 1 else ""
        gpu = f"{which}{device['name']}, capability {device['capability']}"
        if Version(device["capability"]) > Version(needs.newest):
            faults.append(gpu_too_new(gpu, needs.cuda, needs.newest))
        elif Version(device["capability"]) < Version(needs.oldest):
            faults.append(gpu_too_old(gpu, needs.oldest))
        else:
            faults.append(None)
    return faults


def hiding(environment: Mapping[str, str]) -> list[str]:
    """Return the variables of an image by which it sees no GPU, or not all that it is given."""
    lent = {"NVIDIA_VISIBLE_DEVICES": {"all"}, "NVIDIA_DRIVER_CAPABILITIES": {"all", "compute"}}
    wrong = ["CUDA_VISIBLE_DEVICES"] if "CUDA_VISIBLE_DEVICES" in environment else []
    wrong += [
        name
        for name, needed in lent.items()
        if name in environment and not needed & {*environment[name].split(",")}
    ]
    return [f"{name}={environment[name]}" for name in wrong]


def cuda_number(version: str) -> int:
    """Return a CUDA version as CUDA's own functions give it.

    >>> cuda_number("10.1")
    10010
    """
    major, minor = version.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def cuda_version(number: int) -> str:
    """Return what CUDA's own functions give as people write it.

    >>> cuda_version(9000), cuda_version(10010)
    ('9.0', '10.1')
    """
    return f"{number // 1000}.{number % 1000 // 10}"
