"""What the program reads that runs in images: here, from folders laid out as an image's."""

import ast
import os
import struct
import sys
from pathlib import Path

import pytest

from imgbuild.suites import image_program
from imgbuild.suites.container import PROGRAM


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of packages, the only one there is."""
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "none"), str(tmp_path)])
    return tmp_path


def _elf(*sections: str) -> bytes:
    """Return an ELF file that has sections of these names, and nothing in them."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    header = struct.pack("<40xQ10xHHH", 64 + len(names), 64, len(sections) + 2, len(sections) + 1)
    table = bytes(64 * (len(sections) + 1)) + struct.pack("<24xQQ24x", 64, len(names))
    return header + names + table


def test_it_is_a_program_for_the_oldest_python() -> None:
    assert ast.parse(PROGRAM.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_installed_packages(packages: Path) -> None:
    for name in (
        *("tensorflow-1.10.0.dist-info", "tensorflow_cpu-2.2.0.dist-info", "x.data"),
        *("horovod-0.28.1+imgbuild.1-py3.6.egg-info", "tensorflow_estimator-2.3.0.dist-info"),
        *("tensorflow_gpu-2.2.0.data", "absl_py-1.4.0.dist-info"),
        *("tensorflow_cpu_aws-2.15.1.dist-info", "tensorflow_aarch64-2.11.1.dist-info"),
        "tensorflow_gpu-2.2.0+imgbuild.dist-info",  # what stands for another is not one
    ):
        (packages / name).mkdir()
    found = [["horovod", "0.28.1+imgbuild.1"], ["tensorflow", "1.10.0"]]
    found += [["tensorflow-aarch64", "2.11.1"]]
    found += [["tensorflow-cpu", "2.2.0"], ["tensorflow-cpu-aws", "2.15.1"]]
    assert image_program.list_installed(image_program.DISTRIBUTION) == found
    others = [["absl-py", "1.4.0"], ["tensorflow-estimator", "2.3.0"]]
    others += [["tensorflow-gpu", "2.2.0+imgbuild"]]
    assert image_program.list_installed(image_program.PACKAGE) == sorted(found + others)


@pytest.mark.parametrize(
    ("package", "info", "found"),
    [
        ("tensorflow", "is_cuda_build = True\n", True),
        ("tensorflow", "is_cuda_build = False\n", False),
        ("tensorflow_core", "build_info = {'cuda': '10.1', 'is_cuda_build': True}\n", True),
        ("tensorflow", "build_info = {'is_rocm_build': True, 'is_cuda_build': False}\n", False),
        ("tensorflow", "OrderedDict([('is_cuda_build', False), ('is_x', True)])\n", False),
        ("tensorflow", "OrderedDict([('is_x', False), ('is_cuda_build', True)])\n", True),
        ("tensorflow", "is_rocm_build = True\n", None),
        ("none", "is_cuda_build = True\n", None),
    ],
)
def test_what_its_build_wrote_down(
    packages: Path, package: str, info: str, found: bool | None
) -> None:
    (packages / package / "python" / "platform").mkdir(parents=True)
    (packages / package / "python" / "platform" / "build_info.py").write_text(info)
    assert image_program.built_with_cuda() is found


def test_whether_there_are_kernels(packages: Path) -> None:
    assert image_program.has_kernels() is None
    (packages / "tensorflow" / "python").mkdir(parents=True)
    for sections, found in (
        ((".text", ".nv_fatbin", ".data"), True),
        ((".text", ".nv_fatbin_no"), False),
    ):
        library = packages / "tensorflow" / "python" / "_pywrap_tensorflow_internal.so"
        library.write_bytes(_elf(*sections))
        assert image_program.has_kernels() is found


def test_the_versions_of_cuda_are_those_of_its_files_and_wheels(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_program, "LIBRARY_FOLDERS", "/none")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":/none:{packages}")
    for name in (
        *("nvidia_cuda_runtime_cu11-11.8.89.dist-info", "nvidia_cuda_nvcc_cu11-1.0.dist-info"),
        *("libcudart.so.10.1.243", "libcudart.so.9.0.176", "libcudart_static.a"),
    ):
        (packages / name).touch()
    (packages / "libcudart.so.10.1").symlink_to("libcudart.so.10.1.243")
    assert image_program.list_cuda_runtimes() == ["10.1.243", "11.8.89", "9.0.176"]


def test_an_mpirun_that_fails_says_nothing(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(packages), prepend=os.pathsep)
    (packages / "mpirun").write_text("#!/bin/sh\necho broken; exit 1\n")
    (packages / "mpirun").chmod(0o755)
    assert image_program.read_mpirun_version() == ""
