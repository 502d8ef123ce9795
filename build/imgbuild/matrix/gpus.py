"""The GPUs that an image serves: with machine code of the wheel, with PTX, or not at all.

Machine code (a cubin) of capability X.y runs on GPUs of X.z with z >= y, and on no other major
number. PTX is compiled by the driver at first use for any newer capability; the libraries of the
CUDA release (cuBLAS, cuDNN) have code for the capabilities that the release knows and for no newer
ones. Source: CUDA C++ Programming Guide, "Application Compatibility"; NVIDIA Ampere GPU
Architecture Compatibility Guide.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from imgbuild.core.errors import InputError
from imgbuild.matrix.components import Cuda
from imgbuild.matrix.evidence import WheelFacts
from imgbuild.matrix.images import Image


class Generation(NamedTuple):
    """One compute capability: its generation's name, well-known cards, all models."""

    name: str
    capability: str
    examples: str
    models: str


_LINE = re.compile(r"^(\w+) ([\d.]+) \((.+?)\): (.+)$", re.MULTILINE)
#: NVIDIA's GPU generations, the oldest first.
GENERATIONS = tuple(
    Generation(*match.groups())
    for match in _LINE.finditer(Path(__file__).with_name("gpu_models.txt").read_text("utf-8"))
)
#: Words that nvidia-smi and people add to the name of a model. An "RTX 6000" may be two.
_NO_MODEL = re.compile(
    r"\b(nvidia|tesla|geforce|quadro(?! rtx)|grid|gpu|laptop|mobile|max-?q|with|design|generation"
    r"|pcie|nvl|sxm\d?|hbm\w*|\d+ ?gb|blackwell|server|workstation|edition)\b"
)
_COMPILED = "the driver compiles it at the first start, which takes minutes"
#: From this capability on PTX alone may not do: XLA emits what the GPU refuses, and the driver
#: refuses the PTX of some operations. Source: https://github.com/tensorflow/tensorflow, issues
#: 111958 (2.21 and newer) and 101746 (2.16 and 2.20).
_REFUSES_PTX = (12, 0)
_REPORTED = (
    "on capability 12.0 XLA and some operations are reported to fail (issues 111958 and 101746 of "
    "tensorflow/tensorflow)"
)


class Gpu(NamedTuple):
    """A GPU as nvidia-smi names it; None for what it does not tell."""

    name: str
    driver: str | None = None
    capability: str | None = None


class KernelSupport(StrEnum):
    """The kind of code that a wheel has for a GPU."""

    NATIVE = "native kernels"
    PTX = "PTX only"
    NOTHING = "nothing"


def gpu_support(image: Image) -> tuple[tuple[Generation, KernelSupport], ...]:
    """Return every generation with what a GPU image has for it; empty for a CPU image."""
    if image.cuda is None:
        return ()
    wheel, cuda = image.wheel, image.cuda
    return tuple(
        (generation, kernel_support(generation.capability, wheel, cuda))
        for generation in GENERATIONS
    )


def unsupported_gpus(image: Image) -> str | None:
    """Return a sentence on the GPUs that are too new for the image; None without CUDA."""
    if image.cuda is None:
        return None
    newest = _parse_capability(image.cuda.newest)
    newer, compiled = [], []
    for generation, support in gpu_support(image):
        if support is KernelSupport.NOTHING and _parse_capability(generation.capability) > newest:
            newer.append(generation.name)
        elif support is KernelSupport.PTX:
            compiled.append(generation.name)
    if not newer:
        warning = f"{_COMPILED[0].upper()}{_COMPILED[1:]}; {_REPORTED}"
        return f"{compiled[-1]}: PTX only. {warning}." if newest >= _REFUSES_PTX else None
    cuda = f"CUDA {image.version_of('cuda')}"
    return (
        f"{newer[0]} and newer GPUs are not supported by {cuda}: a newer driver may compile the "
        f"wheel's PTX for them, but cuBLAS and cuDNN of {cuda} have no code for them."
    )


def kernel_support(capability: str, wheel: WheelFacts, cuda: Cuda) -> KernelSupport:
    device = _parse_capability(capability)
    for native in map(_parse_capability, wheel.native):
        if native[0] == device[0] and native[1] <= device[1]:
            return KernelSupport.NATIVE
    known = device <= _parse_capability(cuda.newest)
    if known and any(_parse_capability(ptx) <= device for ptx in wheel.ptx):
        return KernelSupport.PTX
    return KernelSupport.NOTHING


def ptx_warning(capability: str) -> str:
    """Return what PTX alone means for a GPU."""
    refused = capability and _parse_capability(capability) >= _REFUSES_PTX
    return f"{_COMPILED}; {_REPORTED}" if refused else _COMPILED


def compatibility(
    image: Image, capability: str | None, driver: str | None
) -> tuple[KernelSupport | None, str]:
    """Return what a GPU image has for a GPU behind a driver (None: unknown), and why not more."""
    cuda, release = image.cuda, f"CUDA {image.version_of('cuda')}"
    support = kernel_support(capability, image.wheel, cuda) if cuda and capability else None
    if cuda and capability and support is KernelSupport.NOTHING:
        if _parse_capability(capability) > _parse_capability(cuda.newest):
            return support, f"{release} knows no capability above {cuda.newest}"
        return support, f"the wheels have no code for capability {capability}"
    # 450.80 counts as the 450.80.02 that it stands for.
    installed = Version(driver).release if driver else ()
    if cuda and installed < Version(cuda.driver).release[: len(installed)]:
        reason = f"driver {driver} is too old for {release}, which needs {cuda.driver}"
        return KernelSupport.NOTHING, reason
    if support is None or driver is None:
        return None, "nvidia-smi does not tell enough; docs/gpus.md has cards by name"
    if support is KernelSupport.NATIVE:
        return support, ""
    return support, ptx_warning(capability or "")


def driver_cuda(image: Image) -> str:
    """Return the CUDA that the driver must know; nothing for a CPU image.

    From CUDA 11 on a driver of the first minor release runs all that follow. Source: NVIDIA, CUDA
    Compatibility, "Minor Version Compatibility".
    """
    release = image.keys.get("cuda", "")
    return f"{release.split('.')[0]}.0" if Version(release or "0") >= Version("11") else release


def _parse_capability(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)


def gpu_capability(model: str) -> str:
    """Return the compute capability of a GPU's model, in NVIDIA's or people's spelling.

    A part of the model is enough if all models that have it are of one capability: ``3090`` is an
    RTX 3090 or 3090 Ti. InputError: it is not in the table; the most similar ones are listed.
    """
    models, capability_of = dict[str, str](), dict[str, str]()
    for generation in GENERATIONS:
        for name in generation.models.split(", "):
            models[_model_key(name)] = name
            capability_of[_model_key(name)] = generation.capability
    key = _model_key(model)
    if key in models:
        return capability_of[key]
    part = re.compile(rf"(?<!\d){key}(?!\d)")  # a key has letters and digits alone
    capabilities = {capability_of[known] for known in models if part.search(known)}
    if len(capabilities) == 1:
        return capabilities.pop()
    import difflib  # noqa: PLC0415 - for the error alone

    similar = difflib.get_close_matches(key, models, n=4, cutoff=0.0)
    listed = ", ".join(models[known] for known in similar)
    raise InputError(
        f"No GPU {model!r} is known here. Most similar: {listed}. Or give its compute capability, "
        "such as 7.0."
    )


def _model_key(model: str) -> str:
    """Return what tells models apart: not the maker, the memory, the form."""
    return re.sub("[^a-z0-9]", "", _NO_MODEL.sub("", model.lower()))
