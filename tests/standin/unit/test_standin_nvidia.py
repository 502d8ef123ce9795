"""NVIDIA's packages: real libraries with the names that TensorFlow asks for."""

from __future__ import annotations

import ctypes
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from standin.context import HERE
from standin.nvidia import _cuda_pins, _depends, _pinned_releases
from standin.nvidia_files import (
    Headers,
    adapted_nccl_header,
    declared_functions,
    files_of,
)
from standin.stub_library import StubLibrary, compile_library, functions_of, release_number

if TYPE_CHECKING:
    from pathlib import Path

    from imgbuild.matrix.model import Matrix

NCCL = """
#define NCCL_MAJOR 2
#define NCCL_MINOR 21
#define NCCL_PATCH 5
#define NCCL_VERSION_CODE 22105
ncclResult_t  ncclGetVersion(int *version);
ncclResult_t pncclGetVersion(int *version);
"""
HEADERS = Headers(
    {"cuda_runtime_api.h": b"#define CUDART_VERSION  11080\n"}, {"crt/host_config.h": b""}, NCCL
)
#: The sonames of the wheels, read out of them, by CUDA release.
WANTED = {
    "9.0": ["libcublas.so.9.0", "libcufft.so.9.0", "libcusolver.so.9.0", "libcudart.so.9.0"],
    "10.0": ["libcublas.so.10.0", "libcupti.so.10.0", "libcusparse.so.10.0"],
    "10.1": ["libcublas.so.10", "libcufft.so.10", "libcudart.so.10.1", "libcupti.so.10.1"],
}


def compiled(library: StubLibrary, names: list[str], folder: Path) -> ctypes.CDLL:
    target = folder / library.soname
    compile_library(library, names, target)
    return ctypes.CDLL(str(target))


@pytest.mark.parametrize("cuda", WANTED)
def test_the_packages_bring_the_sonames_of_the_wheels(matrix: Matrix, cuda: str) -> None:
    system = matrix.cuda[cuda].os[0]
    found: set[str] = set()
    for name, version in _cuda_pins(matrix, cuda, system):
        found |= {path.rpartition("/")[2] for path in files_of(name, version, cuda, HEADERS)}
    assert {*WANTED[cuda]} <= found


def test_a_system_without_this_cuda_gets_no_packages(matrix: Matrix) -> None:
    assert _cuda_pins(matrix, "9.0", "ubuntu-18.04") == []


def test_cudnn_and_nccl_are_those_of_the_stacks(matrix: Matrix) -> None:
    releases = dict(_pinned_releases(matrix))
    assert releases.keys() == {"libcudnn7", "libnccl2", "libnccl-dev"}
    assert releases["libnccl2"] == releases["libnccl-dev"]


def test_development_packages_demand_their_libraries() -> None:
    assert _depends("libnccl-dev", "2.4.8-1+cuda9.0", "9.0") == "libnccl2 (= 2.4.8-1+cuda9.0)"
    assert "cuda-driver-dev-10-1" in _depends("cuda-cudart-dev-10-1", "10.1.243-1", "10.1")
    assert _depends("libcudnn7", "7.6.3.30-1+cuda9.0", "9.0") == ""


def test_functions_have_the_symbol_version_of_their_library(tmp_path: Path) -> None:
    compiled(StubLibrary("cublas", "libcublas.so.9.0", "9.0"), ["cublasCreate_v2"], tmp_path)
    command = ["readelf", "--wide", "--dyn-syms", str(tmp_path / "libcublas.so.9.0")]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "cublasCreate_v2@@libcublas.so.9.0" in symbols


@pytest.mark.parametrize(("cuda", "code"), [("9.0", 38), ("10.0", 38), ("10.1", 100)])
def test_there_is_no_device(cuda: str, code: int, tmp_path: Path) -> None:
    runtime = compiled(
        StubLibrary("cudart", f"libcudart.so.{cuda}", cuda, 10010),
        ["cudaMalloc", "cudaGetDeviceCount", "cudaRuntimeGetVersion"],
        tmp_path,
    )
    number = ctypes.c_int(-1)
    assert runtime.cudaGetDeviceCount(ctypes.byref(number)) == code
    assert number.value == 0
    assert runtime.cudaMalloc(None, 1) == code
    assert runtime.cudaRuntimeGetVersion(ctypes.byref(number)) == 0
    assert number.value == 10010


def test_the_driver_finds_no_device_and_has_a_version(tmp_path: Path) -> None:
    driver = compiled(StubLibrary("cuda", "libcuda.so.1", "10.1", 10010), ["cuInit"], tmp_path)
    assert driver.cuInit(0) == 100
    number = ctypes.c_int(0)
    assert (driver.cuDriverGetVersion(ctypes.byref(number)), number.value) == (0, 10010)


def test_cudnn_gives_its_version(tmp_path: Path) -> None:
    number = release_number("7.6.3.30")
    cudnn = compiled(StubLibrary("cudnn", "libcudnn.so.7", "10.0", number), [], tmp_path)
    assert (number, cudnn.cudnnGetVersion()) == (7603, 7603)


def test_nccl_is_of_the_pinned_release() -> None:
    text = adapted_nccl_header(NCCL, "2.4.8")
    assert re.findall(r"NCCL_\w+ (\d+)", text) == ["2", "4", "8", "2408"]
    assert declared_functions(text) == ["ncclGetVersion", "pncclGetVersion"]


def test_headers_say_which_cuda_they_are_of() -> None:
    files = files_of("cuda-cudart-dev-9-0", "9.0.176-1", "9.0", HEADERS)
    header = files["usr/local/cuda-9.0/targets/x86_64-linux/include/cuda_runtime_api.h"]
    assert header.content == b"#define CUDART_VERSION 9000\n"


@pytest.mark.parametrize(("name", "cuda"), [("cuda-core-9-0", "9.0"), ("cuda-nvcc-10-1", "10.1")])
def test_the_compilers_headers_are_in_its_package(name: str, cuda: str) -> None:
    header, compiler = files_of(name, "1", cuda, HEADERS)
    assert header.endswith("/include/crt/host_config.h")
    assert compiler == f"usr/local/cuda-{cuda}/bin/nvcc"
    assert name in _depends(f"cuda-minimal-build-{cuda.replace('.', '-')}", "1", cuda)


def test_the_stub_of_the_driver_is_among_the_stubs_only() -> None:
    (path,) = files_of("cuda-driver-dev-10-0", "10.0.130-1", "10.0", HEADERS)
    assert path.endswith("/lib/stubs/libcuda.so")


@pytest.mark.parametrize("library", ["cublas", "cudart", "cudnn", "cufft", "curand", "cusolver"])
@pytest.mark.parametrize("cuda", WANTED)
def test_symbols_are_recorded(library: str, cuda: str) -> None:
    names = functions_of(library, cuda)
    assert names == sorted(set(names))
    assert len(names) > 5


def test_horovod_gets_what_it_calls() -> None:
    assert "cudaStreamCreateWithPriority" in functions_of("cudart", "9.0")


def test_a_compiler_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=re.escape("libcufft.so.9.0")):
        compile_library(
            StubLibrary("cufft", "libcufft.so.9.0", "9.0"), ["no identifier"], tmp_path / "x"
        )


KERNEL = """
#include <cstddef>
template <typename T>
__global__ void scale(T* out, int n) { for (int i = threadIdx.x; i < n; i++) { out[i] *= 2; } }
extern "C" int launched(void* data, cudaStream_t stream) {
  scale<<<1, 2, 0, stream>>>((float*)data, (int)sizeof(data));
  return 7;
}
"""


def test_the_compiler_compiles_the_host_half_of_a_kernel(tmp_path: Path) -> None:
    """Horovod 0.20 calls nvcc by way of CMake's FindCUDA, with options such as these."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_runtime.h").write_text("typedef void* cudaStream_t;\n")
    text = (HERE / "files" / "nvcc.pl").read_text(encoding="utf-8")
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(text.replace("{release}", "10.1").replace("{target}", str(tmp_path)))
    nvcc.chmod(0o755)
    (tmp_path / "k.cu").write_text(KERNEL)
    library = tmp_path / "k.so"
    options = ["--std=c++11", "-Xcompiler", ',"-fPIC","-shared"', "-gencode", "arch=a,code=b"]
    files = ["-ccbin", "g++", "-o", str(library), str(tmp_path / "k.cu")]
    subprocess.run([nvcc, *options, *files], check=True)
    assert ctypes.CDLL(str(library)).launched(None, None) == 7
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    assert "release 10.1, V10.1" in said
