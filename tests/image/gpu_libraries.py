"""The shared libraries that each TensorFlow for GPUs asks for, by the names it asks by."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import Version

#: The driver's own: mounted when a container gets GPUs, and never in an image.
DRIVER = "libcuda.so.1"
#: Asked for and done without: these images have none of it.
OPTIONAL = {
    "libnvinfer": "TensorRT, which only tf.contrib.tensorrt and tf.experimental.tensorrt use",
}
#: Opened while TensorFlow runs, and so named in no header. From DsoLoader's functions in the
#: wheels: 1.10 to 1.12 link theirs, and open CUPTI only for tracing; CUDA 9.0 has that in its
#: toolkit alone, so it is not asked for there.
OPENED_LATER = ("cufft", "cupti", "curand")
OPENED = ("cublas", "cudart", "cufft", "cupti", "curand", "cusolver", "cusparse")
#: Which keep the minor version in their names in CUDA 10.1, where the others have 10 alone.
WITH_MINOR = ("cudart", "cupti")
CUDNN, NCCL = "libcudnn.so.7", "libnccl.so.2"


@dataclass(frozen=True)
class VersionNames:
    """Whose version functions are asked: CUDA's run time, cuDNN, NCCL."""

    cudart: str
    cudnn: str = CUDNN
    nccl: str = NCCL


def opened_sonames(tensorflow: tuple[int, int], cuda: str) -> list[str]:
    """Return the names that TensorFlow opens while it runs, and Horovod's NCCL.

    `cuda` is the release that the wheel was compiled for, which the image's own ought to be.

    >>> opened_sonames((1, 12), "9.0")
    ['libnccl.so.2']
    >>> [name for name in opened_sonames((2, 2), "10.1") if "u" in name[:5]][:3]
    ['libcublas.so.10', 'libcudart.so.10.1', 'libcudnn.so.7']
    """
    if tensorflow < (1, 13):
        return [NCCL]
    libraries = OPENED if tensorflow >= (1, 14) else OPENED_LATER
    later = [CUDNN] if tensorflow >= (1, 14) else []
    return sorted([*(soname(library, cuda) for library in libraries), *later, NCCL])


def soname(library: str, cuda: str) -> str:
    """Return the name of a library of a CUDA release.

    >>> soname("cublas", "9.0"), soname("cublas", "10.1"), soname("cudart", "10.1")
    ('libcublas.so.9.0', 'libcublas.so.10', 'libcudart.so.10.1')
    """
    whole = library in WITH_MINOR or Version(cuda) < Version("10.1")
    return f"lib{library}.so.{cuda if whole else cuda.partition('.')[0]}"


def is_optional(name: str) -> bool:
    """Return whether TensorFlow does without this library, or a driver brings it."""
    return name == DRIVER or any(name.startswith(stem) for stem in OPTIONAL)


def version_number(component: str, pin: str) -> int:
    """Return the pin as the component's own version function gives it.

    >>> version_number("cuda", "10.1"), version_number("cudnn", "7.6.3.30")
    (10010, 7603)
    >>> version_number("nccl", "2.4.8"), version_number("nccl", "2.10.3")
    (2408, 21003)
    """
    numbers = [int(part) for part in pin.split(".")[:3]]
    major, minor, patch = [*numbers, 0][:3]
    if component == "cuda":
        return major * 1000 + minor * 10
    if component == "nccl" and (major, minor) >= (2, 9):
        return major * 10000 + minor * 100 + patch
    return major * 1000 + minor * 100 + patch
