"""Whether this machine's driver and GPUs can run what is in the image; if not, exactly why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packaging.version import Version
from skip_reasons import driver_too_old, gpu_too_new, gpu_too_old, no_driver

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
    """Return why nothing can be run; None where all GPUs can be used.

    `found` is what programs/driver.py printed, `no_gpu` why the engine gave none. The driver's age
    comes first: an engine may refuse its GPUs for no other reason.
    """
    kernel = found["kernel"]
    if kernel and Version(kernel) < Version(needs.driver):
        return driver_too_old(kernel, needs.driver)
    if no_gpu or found["error"]:
        return no_driver(no_gpu or found["error"])
    if found["cuda"] and found["cuda"] < cuda_number(needs.cuda):
        return driver_too_old(f"CUDA {cuda_version(found['cuda'])}", needs.driver)
    if found["init"] != 0:
        meaning = CU_INIT.get(found["init"], "no further word")
        return no_driver(f"cuInit of libcuda.so.1 answers {found['init']} ({meaning})")
    return unusable_device(found["devices"], needs)


def unusable_device(devices: list[dict[str, str]], needs: Needs) -> str | None:
    """Return what is wrong with the first device that cannot be used."""
    if not devices:
        return no_driver("it has no device")
    for number, device in enumerate(devices):
        which = f"device {number} of {len(devices)}: " if len(devices) > 1 else ""
        gpu = f"{which}{device['name']}, capability {device['capability']}"
        if Version(device["capability"]) > Version(needs.newest):
            return gpu_too_new(gpu, needs.cuda, needs.newest)
        if Version(device["capability"]) < Version(needs.oldest):
            return gpu_too_old(gpu, needs.oldest)
    return None


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
