"""What the suites find in an image: each fault is found, and a sound image has none."""

from __future__ import annotations

import pytest
import test_gpu_loadable
from expectation import parse_expectation
from gpu_libraries import opened_sonames, version_number
from gpu_machine import hiding
from image_files import (
    File,
    cached,
    compilers,
    drivers,
    must_be_none,
    parsed,
    secrets,
    toolkit,
)
from test_gpu_built import tensorflow_part
from test_gpu_loadable import says, stub_folders, unloadable
from test_helpers import GPU

SOUND = parsed(
    "f 644 5 /opt/python/bin/python3\n"
    "f 644 9 /usr/local/cuda-10.1/targets/x86_64-linux/lib/libcudart.so.10.1.243\n"
    "l 644 9 /usr/lib/x86_64-linux-gnu/libcudnn.so.7\n"
    "f 644 9 /usr/local/cuda-10.1/extras/CUPTI/include/cuda_stdint.h\n"
    "f 644 9 /usr/local/cuda-10.1/extras/CUPTI/lib64/libcupti_static.a\n"
    "f 644 9 /opt/python/lib/python3.6/site-packages/tensorflow/include/cuda.h\n"
    "f 644 9 /opt/python/lib/python3.6/distutils/ccompiler.py\n"
    "f 644 9 /usr/bin/mpicc.openmpi.txt\n"
    "f 644 0 /var/lib/apt/lists/lock\n"
    "d 644 9 /usr/local/cuda/bin/nvcc\n"
)


def test_a_sound_image_has_no_fault() -> None:
    for judge in (compilers, cached, drivers, secrets, toolkit):
        must_be_none(judge(SOUND))


@pytest.mark.parametrize(
    "path", ["/root/.netrc", "/etc/apt/auth.conf.d/mirror.conf", "/etc/ssh/ssh_host_rsa_key"]
)
def test_a_secret_is_found(path: str) -> None:
    assert secrets([File("f", 1, path)]) == [path]
    assert secrets([File("f", 0, "/run/secrets/ca.pem"), File("d", 1, "/run/secrets")]) == []


@pytest.mark.parametrize(
    "path",
    [
        "/usr/bin/gcc",
        "/usr/bin/g++-4.8",
        "/usr/bin/x86_64-linux-gnu-gcc-5",
        "/usr/bin/cc",
        "/usr/lib/gcc/x86_64-linux-gnu/5/cc1plus",
        "/usr/local/cuda-10.1/bin/nvcc",
        "/usr/bin/cmake",
        "/usr/bin/make",
        "/opt/miniconda/bin/x86_64-conda_cos6-linux-gnu-cc",
    ],
)
def test_a_compiler_is_found(path: str) -> None:
    assert compilers([File("f", 1, path)]) == compilers([File("l", 1, path)]) == [path]


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/apt/lists/archive.ubuntu.com_Packages",
        "/var/cache/apt/pkgcache.bin",
        "/root/.cache/pip/http/a",
        "/opt/miniconda/pkgs/python-3.6.2.tar.bz2",
        "/tmp/libcudnn7.deb",  # noqa: S108
    ],
)
def test_a_package_cache_is_found(path: str) -> None:
    assert cached([File("f", 1, path)]) == [path]
    assert cached([File("f", 0, path)]) == []


@pytest.mark.parametrize(
    "path",
    [
        "/usr/local/cuda/targets/x86_64-linux/lib/stubs/libcuda.so",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/local/nvidia/lib64/libcuda.so.418.39",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    ],
)
def test_a_library_of_the_driver_is_found(path: str) -> None:
    assert drivers([File("l", 1, path)]) == [path]


@pytest.mark.parametrize(
    "path",
    [
        "/usr/local/cuda-9.0/bin/nvcc",
        "/usr/local/cuda-9.0/targets/x86_64-linux/include/cuda_runtime.h",
        "/usr/include/nccl.h",
        "/usr/include/cudnn.h",
        "/usr/include/x86_64-linux-gnu/cudnn_v7.h",
        "/usr/lib/x86_64-linux-gnu/libcudnn_static_v7.a",
        "/usr/lib/x86_64-linux-gnu/libnccl_static.a",
        "/usr/local/cuda-10.0/targets/x86_64-linux/lib/libcudart_static.a",
    ],
)
def test_a_piece_of_the_toolkit_is_found(path: str) -> None:
    assert toolkit([File("f", 1, path)]) == [path]


@pytest.mark.parametrize(
    ("tensorflow", "cuda", "names"),
    [
        ((1, 10), "9.0", {"libnccl.so.2"}),
        (
            (1, 13),
            "10.0",
            {"libcufft.so.10.0", "libcupti.so.10.0", "libcurand.so.10.0", "libnccl.so.2"},
        ),
        (
            (2, 3),
            "10.1",
            {
                *("libcublas.so.10", "libcudart.so.10.1", "libcufft.so.10", "libcupti.so.10.1"),
                *("libcurand.so.10", "libcusolver.so.10", "libcusparse.so.10", "libcudnn.so.7"),
                "libnccl.so.2",
            },
        ),
        (
            (2, 5),
            "11.2",
            {
                *("libcublas.so.11", "libcublasLt.so.11", "libcudart.so.11.0", "libcufft.so.10"),
                *("libcurand.so.10", "libcusolver.so.11", "libcusparse.so.11", "libcudnn.so.8"),
                "libnccl.so.2",
            },
        ),
        (
            (2, 14),
            "11.8",
            {
                *("libcublas.so.11", "libcublasLt.so.11", "libcudart.so.11.0", "libcufft.so.10"),
                *("libcusolver.so.11", "libcusparse.so.11", "libcudnn.so.8", "libnccl.so.2"),
            },
        ),
        (
            (2, 15),
            "12.2",
            {
                *("libcublas.so.12", "libcublasLt.so.12", "libcudart.so.12", "libcufft.so.11"),
                *("libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.8", "libnccl.so.2"),
            },
        ),
    ],
)
def test_what_tensorflow_opens(tensorflow: tuple[int, int], cuda: str, names: set[str]) -> None:
    assert set(opened_sonames(tensorflow, cuda)) == names


def test_what_did_not_load_is_said_with_who_asks() -> None:
    found = {
        "liba.so": {"path": "/usr/lib/liba.so.1", "error": None},
        "libb.so": {"path": None, "error": "libb.so: no such file"},
    }
    asked = {"liba.so": ["x.so"], "libb.so": ["tensorflow/y.so", "z.so"]}
    assert unloadable(found, asked) == ["libb.so: no such file (asked for by tensorflow/y.so)"]


@pytest.mark.parametrize(
    ("status", "version", "right"),
    [
        *((0, 10010, True), (0, 10000, False), (0, 0, False)),
        *((35, 0, True), (35, 9000, False), ("cannot open", None, False)),
    ],
)
def test_a_version_is_right_or_cannot_be_had(
    status: int | str, version: int | None, *, right: bool
) -> None:
    found = {"status": status, "version": version}
    assert says(found, version_number("cuda", "10.1")) is right


def test_what_tensorflows_loader_refuses_is_found() -> None:
    opened = dict.fromkeys([*test_gpu_loadable.ALWAYS_OPENED, "GetCurandDsoHandle"], True)
    without_driver = {**opened, "GetCudaDriverDsoHandle": False, "GetNvInferDsoHandle": False}
    assert test_gpu_loadable.refused(without_driver) == []
    assert test_gpu_loadable.refused({**opened, "GetCudnnDsoHandle": False}) == [
        "GetCudnnDsoHandle"
    ]
    assert test_gpu_loadable.refused({**opened, "GetNcclDsoHandle": False}) == ["GetNcclDsoHandle"]
    assert len(test_gpu_loadable.refused({})) == len(test_gpu_loadable.ALWAYS_OPENED)


def test_a_second_cuda_beside_the_first_is_found() -> None:
    line = "\tlib{} (libc6,x86-64) => {}/lib{}\n"
    names = ("cudnn.so.8", "curand.so.10", "curl.so.4", "nccl.so.2")
    once = "".join(line.format(name, "/cu11", name) for name in names)
    assert test_gpu_loadable.repeated(f"9 libs found\n{once}") == []
    again = "".join(line.format(name, "/cu12", name) for name in names[1:3])
    assert test_gpu_loadable.repeated(once + again) == [
        "libcurand.so.10: /cu11/libcurand.so.10, /cu12/libcurand.so.10"
    ]


def test_xla_has_its_assembler_and_nothing_else_compiles() -> None:
    site = "/opt/python/lib/python3.11/site-packages"
    ptxas, bitcode = (
        f"{site}/nvidia/cuda_nvcc/{p}" for p in ("bin/ptxas", "nvvm/libdevice/libdevice.10.bc")
    )
    assert compilers([File("f", 1, ptxas)]) == toolkit([File("f", 1, bitcode)]) == []
    assert compilers([File("f", 1, "/usr/local/cuda-10.0/bin/ptxas")])
    wrong = [
        f"{site}/nvidia/{path}"
        for path in ("cuda_nvcc/bin/nvcc", "cuda_nvcc/nvvm/lib64/libnvvm.so.4", "nccl/lib/libx.a")
    ]
    wrong += [f"{site}/nvidia/cuda_runtime/include/crt/{name}" for name in ("a.h", "b.hpp")]
    assert toolkit([File("f", 1, path) for path in wrong]) == sorted(wrong)


def test_a_folder_of_stubs_is_found() -> None:
    searched = ["# /usr/local/cuda/lib64/stubs", "/usr/local/cuda/lib64/stubs", "/usr/lib", ""]
    assert stub_folders(searched) == ["/usr/local/cuda/lib64/stubs"]


def test_nccl_must_be_called_by_the_library_for_tensorflow() -> None:
    calls = {"horovod/torch/mpi_lib.so": ["ncclAllReduce"]}
    assert tensorflow_part(calls) == []
    assert tensorflow_part({**calls, "horovod/tensorflow/mpi_lib.so": ["a"]}) == ["a"]


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}, []),
        ({"NVIDIA_DRIVER_CAPABILITIES": "all"}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ["CUDA_VISIBLE_DEVICES=-1"]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["CUDA_VISIBLE_DEVICES=0"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["CUDA_VISIBLE_DEVICES="]),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, ["NVIDIA_VISIBLE_DEVICES=void"]),
        ({"NVIDIA_DRIVER_CAPABILITIES": "utility"}, ["NVIDIA_DRIVER_CAPABILITIES=utility"]),
    ],
)
def test_a_variable_that_hides_gpus_is_found(variables: dict[str, str], found: list[str]) -> None:
    assert hiding(variables) == found


@pytest.mark.parametrize("required", [None, "", "cuda>=99.0", "cuda>=10.0"])
def test_a_driver_is_required_that_knows_the_pinned_cuda(required: str | None) -> None:
    expect = parse_expectation(GPU)
    wrong = {} if required is None else {"NVIDIA_REQUIRE_CUDA": required}
    test_gpu_loadable.test_environment_requires_the_pinned_cuda(
        {"NVIDIA_REQUIRE_CUDA": "cuda>=10.1"}, expect
    )
    with pytest.raises(AssertionError, match=r"NVIDIA_REQUIRE_CUDA is .*, not cuda>=10\.1"):
        test_gpu_loadable.test_environment_requires_the_pinned_cuda(wrong, expect)
