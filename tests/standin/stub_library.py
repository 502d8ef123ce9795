"""Shared libraries with NVIDIA's names and functions, in which no GPU is ever found.

Real ELF files: SONAME and symbol versions are as in NVIDIA's (each function of libcublas.so.9.0 has
the version ``libcublas.so.9.0``), so that the wheels link and look up what they do with the real
ones. Every function says that there is no device, in its own library's numbers.
"""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from standin.workbench import scratch

#: What a function returns that cannot do its work. From NVIDIA's documentation of the enumerations
#: cudaError_t (cudaErrorNoDevice; 38 before CUDA 10.1), CUresult (CUDA_ERROR_NO_DEVICE),
#: cublasStatus_t, cudnnStatus_t, cusolverStatus_t, cusparseStatus_t (..._NOT_INITIALIZED),
#: cufftResult (CUFFT_INTERNAL_ERROR), curandStatus_t (CURAND_STATUS_INITIALIZATION_FAILED),
#: CUptiResult (CUPTI_ERROR_NOT_INITIALIZED), ncclResult_t (ncclUnhandledCudaError).
_FAILURE = {
    "cuda": 100, "cudart": 100, "cublas": 1, "cublasLt": 1, "cudnn": 1, "cusolver": 1,
    "cusparse": 1, "cufft": 5, "curand": 203, "cupti": 15, "nccl": 1, "nvToolsExt": 0,
}  # fmt: skip
_NO_DEVICE_BEFORE_10_1 = 38
#: The driver's and NCCL's functions have no symbol versions.
_UNVERSIONED = {"cuda", "cupti", "nccl", "nvToolsExt"}


@dataclass(frozen=True)
class StubLibrary:
    name: str
    """NVIDIA's name, such as ``cublas``."""
    soname: str
    cuda: str
    """The CUDA release that it belongs to, such as ``10.0``."""
    version: int = 0
    """What its version function answers, such as 7603 for cuDNN 7.6.3."""


def source_of(library: StubLibrary, functions: Iterable[str]) -> str:
    """Return the C source; compiled without any header and without the C library."""
    failure = _FAILURE[library.name]
    if library.name == "cudart" and library.cuda != "10.1":
        failure = _NO_DEVICE_BEFORE_10_1
    special = _special(library, failure)
    plain = sorted({*functions} - {*special})
    lines = [f"int {name}(void) {{ return {failure}; }}" for name in plain]
    return "\n".join([*special.values(), *lines]) + "\n"


def compile_library(library: StubLibrary, functions: Iterable[str], target: Path) -> None:
    with scratch() as folder:
        (folder / "stub.c").write_text(source_of(library, functions), encoding="utf-8")
        (folder / "stub.map").write_text(f"{library.soname} {{ global: *; }};\n", encoding="utf-8")
        command = ["gcc", "-shared", "-fPIC", "-Os", "-w", "-nostdlib", "-ffreestanding", "-s"]
        command += [f"-Wl,-soname,{library.soname}", "-Wl,--build-id=none", "-o", str(target)]
        if library.name not in _UNVERSIONED:
            command += [f"-Wl,--version-script,{folder}/stub.map"]
        command += [str(folder / "stub.c")]
        subprocess.run(command, check=True)


def _special(library: StubLibrary, failure: int) -> dict[str, str]:
    """Return the functions that are no plain failure, by name."""
    number, text = library.version, f'"no device: this is a stand-in for lib{library.name}"'
    strings = ["GetErrorString", "GetErrorName"]
    table = {
        "cudart": {
            **{name: f"const char *{name}(int e) {{ return {text}; }}" for name in
               [f"cuda{suffix}" for suffix in strings]},
            **{name: f"int {name}(int *v) {{ *v = {number}; return 0; }}" for name in
               ("cudaRuntimeGetVersion", "cudaDriverGetVersion")},
            "cudaGetDeviceCount": f"int cudaGetDeviceCount(int *n) {{ *n = 0; return {failure}; }}",
            "__cudaRegisterFatBinary":
                "static void *handle; void **__cudaRegisterFatBinary(void *f) { return &handle; }",
            **{name: f"void {name}(void) {{ }}" for name in
               ("__cudaRegisterFatBinaryEnd", "__cudaRegisterFunction", "__cudaRegisterVar",
                "__cudaRegisterTexture", "__cudaRegisterSurface", "__cudaUnregisterFatBinary")},
            "__cudaInitModule": "char __cudaInitModule(void **h) { return 1; }",
        },
        "cuda": {
            "cuDriverGetVersion": f"int cuDriverGetVersion(int *v) {{ *v = {number}; return 0; }}",
        },
        "cudnn": {
            "cudnnGetVersion": f"unsigned long cudnnGetVersion(void) {{ return {number}; }}",
            "cudnnGetCudartVersion": "unsigned long cudnnGetCudartVersion(void) "
                f"{{ return {cuda_number(library.cuda)}; }}",
            "cudnnGetErrorString": f"const char *cudnnGetErrorString(int e) {{ return {text}; }}",
            "cudnnGetProperty": "int cudnnGetProperty(int p, int *v) { "
                f"*v = p == 0 ? {number // 1000} : p == 1 ? {number // 100 % 10} : {number % 100}; "
                "return 0; }",
        },
        "nccl": {
            "ncclGetVersion": f"int ncclGetVersion(int *v) {{ *v = {number}; return 0; }}",
            "ncclGetErrorString": f"const char *ncclGetErrorString(int e) {{ return {text}; }}",
        },
    }  # fmt: skip
    return table.get(library.name, {})


def cuda_number(cuda: str) -> int:
    """Return CUDA's version as its own functions give it: 10010 for 10.1."""
    major, minor = cuda.split(".")
    return int(major) * 1000 + int(minor) * 10


def release_number(version: str) -> int:
    """Return cuDNN's or NCCL's version as their own functions give it: 7603 for 7.6.3.30."""
    major, minor, patch = version.split(".")[:3]
    return int(major) * 1000 + int(minor) * 100 + int(patch)
