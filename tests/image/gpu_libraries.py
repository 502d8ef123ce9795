"""The shared libraries that each TensorFlow for GPUs asks for, by the names it asks by."""

from __future__ import annotations

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
#: From CUDA 11 on a name is that of the first release that has it, and each library counts for
#: itself. CUPTI is left out: TensorFlow before 2.12 asks for that of CUDA 11.2, then for any.
NAMED_APART = {
    "11": {"cublas": "11", "cublasLt": "11", "cudart": "11.0", "cufft": "10", "curand": "10",
           "cusolver": "11", "cusparse": "11"},
    "12": {"cublas": "12", "cublasLt": "12", "cudart": "12", "cufft": "11", "curand": "10",
           "cusolver": "11", "cusparse": "12"},
}  # fmt: skip
#: Since when no function of DsoLoader names cuRAND, so that TensorFlow opens it no more.
WITHOUT_CURAND = (2, 14)
NCCL = "libnccl.so.2"
#: Which cuDNN the wheels open: 7 up to CUDA 10, 8 for 11 and 12, and 9 since a version.
CUDNN, CUDNN_8, CUDNN_9 = "libcudnn.so.7", "libcudnn.so.8", "libcudnn.so.9"
WITH_CUDNN_9 = (2, 18)


def opened_sonames(tensorflow: tuple[int, int], cuda: str) -> list[str]:
    """Return the names that TensorFlow opens while it runs, and Horovod's NCCL.

    `cuda` is the release that the wheel was compiled for, which the image's own ought to be.

    >>> opened_sonames((1, 12), "9.0")
    ['libnccl.so.2']
    >>> [name for name in opened_sonames((2, 2), "10.1") if "u" in name[:5]][:3]
    ['libcublas.so.10', 'libcudart.so.10.1', 'libcudnn.so.7']
    >>> "libcurand.so.10" in opened_sonames((2, 13), "11.8")
    True
    >>> "libcurand.so.10" in opened_sonames((2, 14), "11.8")
    False
    >>> [opened_sonames((2, minor), "12.5")[3] for minor in (17, 18)]
    ['libcudnn.so.8', 'libcudnn.so.9']
    """
    if tensorflow < (1, 13):
        return [NCCL]
    if apart := NAMED_APART.get(cuda.partition(".")[0]):
        names = {soname(library, cuda) for library in apart}
        unasked = {soname("curand", cuda)} if tensorflow >= WITHOUT_CURAND else set()
        return sorted(
            [*(names - unasked), CUDNN_9 if tensorflow >= WITH_CUDNN_9 else CUDNN_8, NCCL]
        )
    libraries = OPENED if tensorflow >= (1, 14) else OPENED_LATER
    later = [CUDNN] if tensorflow >= (1, 14) else []
    return sorted([*(soname(library, cuda) for library in libraries), *later, NCCL])


def soname(library: str, cuda: str) -> str:
    """Return the name of a library of a CUDA release.

    >>> soname("cublas", "9.0"), soname("cublas", "10.1"), soname("cudart", "10.1")
    ('libcublas.so.9.0', 'libcublas.so.10', 'libcudart.so.10.1')
    >>> soname("cudart", "11.8"), soname("cufft", "12.2")
    ('libcudart.so.11.0', 'libcufft.so.11')
    """
    if apart := NAMED_APART.get(cuda.partition(".")[0]):
        return f"lib{library}.so.{apart[library]}"
    whole = library in WITH_MINOR or Version(cuda) < Version("10.1")
    return f"lib{library}.so.{cuda if whole else cuda.partition('.')[0]}"


def is_optional(name: str) -> bool:
    """Return whether TensorFlow does without this library, or a driver brings it."""
    return name == DRIVER or any(name.startswith(stem) for stem in OPTIONAL)


def driver_cuda(cuda: str) -> str:
    """Return the CUDA that a driver must know: from 11 on the first minor release is enough.

    >>> driver_cuda("10.1"), driver_cuda("11.8")
    ('10.1', '11.0')
    """
    major = cuda.partition(".")[0]
    return f"{major}.0" if major in NAMED_APART else cuda


def version_number(component: str, pin: str) -> int:
    """Return the pin as the component's own version function gives it.

    >>> version_number("cuda", "10.1"), version_number("cudnn", "7.6.3.30")
    (10010, 7603)
    >>> version_number("cudnn", "9.3.0.75")
    90300
    >>> version_number("nccl", "2.4.8"), version_number("nccl", "2.10.3")
    (2408, 21003)
    """
    numbers = [int(part) for part in pin.split(".")[:3]]
    major, minor, patch = [*numbers, 0][:3]
    if component == "cuda":
        return major * 1000 + minor * 10
    if (component == "nccl" and (major, minor) >= (2, 9)) or (component == "cudnn" and major >= 9):
        return major * 10000 + minor * 100 + patch
    return major * 1000 + minor * 100 + patch
