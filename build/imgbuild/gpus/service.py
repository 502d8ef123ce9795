"""What a TensorFlow wheel has for a GPU: machine code, PTX that its CUDA can compile, or nothing.

Machine code (a cubin) of capability X.y runs on GPUs of X.z with z >= y, and on no other major
number. PTX is compiled by the driver at first use for any newer capability; the libraries of the
CUDA release (cuBLAS, cuDNN) have code for the capabilities that the release knows and for no newer
ones. Source: CUDA C++ Programming Guide, "Application Compatibility".
"""

from dataclasses import dataclass
from enum import StrEnum

from imgbuild.gpus.generations import GENERATIONS, Generation
from imgbuild.matrix.image import Image
from imgbuild.matrix.model import Cuda, GpuWheel


class Service(StrEnum):
    """How a GPU is served."""

    NATIVE = "native kernels"
    PTX = "PTX only"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Served:
    """One generation, and what the wheel has for it."""

    generation: Generation
    service: Service


def served_by(image: Image) -> tuple[Served, ...]:
    """Return every generation with what a GPU image has for it; nothing for a CPU image."""
    if image.cuda is None:
        return ()
    gpu, cuda = image.wheel.gpu, image.cuda
    return tuple(Served(g, service_for(g.capability, gpu, cuda)) for g in GENERATIONS)


def not_served(image: Image) -> str | None:
    """Return a sentence on the GPUs that are too new for the image's CUDA; None if it has no CUDA.

    Source: CUDA C++ Programming Guide, "Application Compatibility"; NVIDIA Ampere GPU Architecture
    Compatibility Guide.
    """
    newest = _numbers(image.cuda.newest) if image.cuda else (0, 0)
    newer = [s.generation for s in served_by(image) if s.service is Service.NOTHING]
    newer = [generation for generation in newer if _numbers(generation.capability) > newest]
    if not newer:
        return None
    cuda = f"CUDA {image.version_of('cuda').split('.')[0]}"
    return (
        f"{newer[0].name} and newer GPUs are not served by {cuda}: a newer driver may compile the "
        f"wheel's PTX for them, but cuBLAS and cuDNN of {cuda} have no code for them."
    )


def service_for(capability: str, wheel: GpuWheel, cuda: Cuda) -> Service:
    """Return what a wheel has for GPUs of a compute capability."""
    device = _numbers(capability)
    if any(_runs_on(_numbers(code), device) for code in wheel.native):
        return Service.NATIVE
    known = device <= _numbers(cuda.newest)
    if known and any(_numbers(ptx) <= device for ptx in wheel.ptx):
        return Service.PTX
    return Service.NOTHING


def _runs_on(code: tuple[int, int], device: tuple[int, int]) -> bool:
    return code[0] == device[0] and code[1] <= device[1]


def _numbers(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)
