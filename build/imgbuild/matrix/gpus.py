"""Determine which GPUs an image supports: with machine code, with PTX, or not at all.

Machine code (a cubin) for capability X.y runs on GPUs of capability X.z if z >= y, and on no other
major number. The driver compiles PTX for any newer capability at first use. But the libraries of a
CUDA release (cuBLAS, cuDNN) only have code for the capabilities that the release supports. Sources:
CUDA C++ Programming Guide, "Application Compatibility"; NVIDIA Ampere GPU Architecture
Compatibility Guide.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from imgbuild.core.errors import InputError
from imgbuild.core.text import printable
from imgbuild.matrix.components import Cuda
from imgbuild.matrix.evidence import WheelFacts
from imgbuild.matrix.images import Image, all_images


class Generation(NamedTuple):
    """A compute capability: its generation, well-known cards, and all models.

    Commas separate the models.
    """

    name: str
    capability: str
    examples: str
    models: str


_LINE = re.compile(r"^(\w+) ([\d.]+) \((.+?)\): (.+)$", re.MULTILINE)
#: NVIDIA's GPU generations, oldest first.
GENERATIONS = tuple(
    Generation(*match.groups())
    for match in _LINE.finditer(Path(__file__).with_name("gpu_models.txt").read_text("utf-8"))
)
#: Words that nvidia-smi and users add to a model's name. "Quadro" before "RTX" is not removed,
#: because it tells the Quadro RTX 6000 from the RTX 6000 Ada.
_NO_MODEL = re.compile(
    r"\b(nvidia|tesla|geforce|quadro(?! rtx)|grid|gpu|laptop|mobile|max-?q|with|design|generation"
    r"|pcie|nvl|sxm\d?|hbm\w*|\d+ ?gb|blackwell|server|workstation|edition)\b"
)
#: The GPUs of machines with ARM processors. Source: NVIDIA's pages about Grace Hopper, Grace
#: Blackwell, DGX Spark and Jetson.
_ARM_MODELS = re.compile(
    r"\b(gh200|gb10|gb[23]00|grace|dgx[ -]?spark|jetson|orin|tegra|thor|xavier)\b", re.IGNORECASE
)
#: Why GPU images are only for x86-64. Source: build_info.py of these wheels (images/evidence.json).
NO_CUDA_ON_ARM = "TensorFlow's wheels for arm64 have no CUDA"
#: The effect of `KernelSupport.PTX`.
PTX_WARNING = "the driver compiles the PTX at the first start, which takes minutes"


class Gpu(NamedTuple):
    """A GPU as nvidia-smi reports it; a value is None if nvidia-smi does not report it."""

    name: str
    driver: str | None = None
    capability: str | None = None


class KernelSupport(StrEnum):
    """The kind of code that a wheel has for a GPU."""

    NATIVE = "native kernels"
    PTX = "PTX only"
    NOTHING = "nothing"


def gpu_support(image: Image) -> tuple[tuple[Generation, KernelSupport], ...]:
    """Return how an image supports each GPU generation; empty for a CPU image."""
    if image.cuda is None:
        return ()
    wheel, cuda = image.wheel, image.cuda
    return tuple(
        (generation, kernel_support(generation.capability, wheel, cuda))
        for generation in GENERATIONS
    )


def unsupported_gpus(image: Image) -> str | None:
    """Return a warning about GPUs that are too new for full support; None if there are none."""
    if image.cuda is None:
        return None
    newest = _parse_capability(image.cuda.newest)
    newer = [known.name for known in GENERATIONS if _parse_capability(known.capability) > newest]
    *_, (generation, support) = gpu_support(image)
    if newer:
        cuda = f"CUDA {image.version_of('cuda')}"
        return (
            f"{newer[0]} and newer GPUs are not supported by {cuda}: cuBLAS and cuDNN of {cuda} "
            "have no code for them, even if a newer driver compiles the wheel's PTX."
        )
    if support is KernelSupport.NOTHING:
        return (
            f"{generation.name} and newer GPUs are not supported by TensorFlow {image.tensorflow}: "
            "many of its operations, for example Add, have no code for them."
        )
    if support is KernelSupport.PTX:
        return f"{generation.name}: {support}. {PTX_WARNING[0].upper()}{PTX_WARNING[1:]}."
    return None


def kernel_support(capability: str, wheel: WheelFacts, cuda: Cuda) -> KernelSupport:
    device = _parse_capability(capability)
    for native in map(_parse_capability, wheel.native):
        if native[0] == device[0] and native[1] <= device[1]:
            return KernelSupport.NATIVE
    known = device <= _parse_capability(cuda.newest)
    if known and any(_parse_capability(ptx) <= device for ptx in wheel.ptx):
        return KernelSupport.PTX
    return KernelSupport.NOTHING


def compatibility(
    image: Image, capability: str | None, driver: str | None
) -> tuple[KernelSupport | None, str]:
    """Return how a GPU image supports a GPU with a driver, and why it is not native support.

    ``capability`` and ``driver`` are None if they are unknown. The support is None if it depends on
    an unknown value.
    """
    cuda, release = image.cuda, f"CUDA {image.version_of('cuda')}"
    support = kernel_support(capability, image.wheel, cuda) if cuda and capability else None
    if cuda and capability and support is KernelSupport.NOTHING:
        if _parse_capability(capability) > _parse_capability(cuda.newest):
            return support, f"{release} supports no capability above {cuda.newest}"
        return support, f"the wheels do not support capability {capability}"
    # Compare only the given numbers, so that 450.80 counts as 450.80.02.
    installed = Version(driver).release if driver else ()
    if cuda and installed < Version(cuda.driver).release[: len(installed)]:
        reason = f"driver {driver} is too old for {release}, which needs {cuda.driver}"
        return KernelSupport.NOTHING, reason
    if support is None or driver is None:
        return None, "nvidia-smi does not report enough; docs/gpus.md lists cards by name"
    if support is KernelSupport.NATIVE:
        return support, ""
    return support, PTX_WARNING


def driver_cuda(image: Image) -> str:
    """Return the CUDA release that the driver must support; empty for a CPU image.

    From CUDA 11 on, a driver for the first minor release also runs all later minor releases.
    Source: NVIDIA, CUDA Compatibility, "Minor Version Compatibility".
    """
    release = image.keys.get("cuda", "")
    return f"{release.split('.')[0]}.0" if Version(release or "0") >= Version("11") else release


def gpu_facts(image: Image, cuda: Cuda) -> dict[str, object]:
    """Return what the check at container start knows of an image with this CUDA.

    ``driver`` is the oldest driver, ``driver_cuda`` the CUDA release that this driver supports.
    ``newest`` is the newest capability of CUDA's libraries. ``instead`` names an image for each GPU
    generation that this image does not support.
    """
    return {
        "tensorflow": image.tensorflow,
        "cuda": image.version_of("cuda"),
        "driver": cuda.driver,
        "driver_cuda": driver_cuda(image),
        "newest": cuda.newest,
        "native": list(image.wheel.native),
        "ptx": list(image.wheel.ptx),
        "instead": _find_instead(image),
    }


def _find_instead(image: Image) -> dict[str, str]:
    """Return the image with the nearest TensorFlow for each capability that ``image`` lacks.

    It is the newest of the older ones, or else the oldest of the newer ones, so that a new release
    of TensorFlow changes no fact about an image that another one can replace.
    """
    own = Version(image.tensorflow)
    older, newer = dict[str, str](), dict[str, str]()
    for other in sorted(all_images(image.matrix), key=lambda other: Version(other.tensorflow)):
        for generation, support in gpu_support(other):
            if support is KernelSupport.NOTHING:
                continue
            if Version(other.tensorflow) < own:
                older[generation.capability] = other.name
            elif Version(other.tensorflow) > own:
                newer.setdefault(generation.capability, other.name)
    lacking = [
        generation.capability
        for generation, support in gpu_support(image)
        if support is KernelSupport.NOTHING
    ]
    able = {**newer, **older}
    return {capability: able[capability] for capability in lacking if capability in able}


def _parse_capability(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)


def gpu_capability(model: str) -> str:
    """Return the compute capability of a GPU model, in NVIDIA's spelling or a similar one.

    A part of the name is enough if all models with this part have the same capability: ``3090``
    matches the RTX 3090 and the RTX 3090 Ti.

    InputError: no model matches, or the matches differ in capability. The most similar models are
    listed.
    """
    models, capability_of = dict[str, str](), dict[str, str]()
    for generation in GENERATIONS:
        for name in generation.models.split(", "):
            models[_model_key(name)] = name
            capability_of[_model_key(name)] = generation.capability
    key = _model_key(model)
    if key in models:
        return capability_of[key]
    part = re.compile(rf"(?<!\d){key}(?!\d)")  # a key needs no escaping: letters and digits only
    capabilities = {capability_of[known] for known in models if part.search(known)}
    if len(capabilities) == 1:
        return capabilities.pop()
    import difflib  # noqa: PLC0415 - for the error alone

    similar = difflib.get_close_matches(key, models, n=4, cutoff=0.0)
    listed = ", ".join(models[known] for known in similar)
    raise InputError(
        f"{model!r} does not name one known GPU. Most similar: {listed}. Use one of these names, "
        "or the GPU's compute capability, for example 7.0."
    )


def why_no_image(model: str) -> str:
    """Return why no image can use a GPU of machines with ARM processors; empty for other GPUs."""
    if not _ARM_MODELS.search(model):
        return ""
    return (
        f"No image can use {printable(model)}. This GPU is in machines with ARM processors, and "
        f"GPU images are only for x86-64, because {NO_CUDA_ON_ARM}."
    )


def _model_key(model: str) -> str:
    """Return a model's name in lower case without maker, memory size and form factor."""
    return re.sub("[^a-z0-9]", "", _NO_MODEL.sub("", model.lower()))
