"""What the program reads that runs in images: here, from folders laid out as an image's."""

import ast
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.suites import image_program
from imgbuild.suites.container import PROGRAM

Packages = Callable[..., Path]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    """Return what makes a folder of packages, the only one there is."""

    def make(
        *files: str, package: str = "tensorflow", info: str = "", library: bytes = b""
    ) -> Path:
        for file in files:
            (tmp_path / file).mkdir()
        folder = tmp_path / package / "python"
        (folder / "platform").mkdir(parents=True)
        if info:
            (folder / "platform" / "build_info.py").write_text(info)
        if library:
            (folder / "_pywrap_tensorflow_internal.so").write_bytes(library)
        monkeypatch.setattr(sys, "path", ["", str(tmp_path / "none"), str(tmp_path)])
        return tmp_path

    return make


def _elf(*sections: str) -> bytes:
    """Return an ELF file that has sections of these names, and nothing in them."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    header = struct.pack("<40xQ10xHHH", 64 + len(names), 64, len(sections) + 2, len(sections) + 1)
    table = bytes(64 * (len(sections) + 1)) + struct.pack("<24xQQ24x", 64, len(names))
    return header + names + table


def test_it_is_a_program_for_the_oldest_python() -> None:
    assert ast.parse(PROGRAM.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_installed_packages(packages: Packages) -> None:
    packages(
        *("tensorflow-1.10.0.dist-info", "tensorflow_cpu-2.2.0.dist-info", "x.data"),
        *("horovod-0.28.1+imgbuild.1-py3.6.egg-info", "tensorflow_estimator-2.3.0.dist-info"),
        *("tensorflow_gpu-2.2.0.data", "absl_py-1.4.0.dist-info"),
        "tensorflow_gpu-2.2.0+imgbuild.dist-info",  # what stands for another is not one
    )
    found = [
        ["horovod", "0.28.1+imgbuild.1"],
        ["tensorflow", "1.10.0"],
        ["tensorflow-cpu", "2.2.0"],
    ]
    assert image_program.installed(image_program.DISTRIBUTION) == found
    others = [["absl-py", "1.4.0"], ["tensorflow-estimator", "2.3.0"]]
    others.append(["tensorflow-gpu", "2.2.0+imgbuild"])
    assert image_program.installed(image_program.PACKAGE) == sorted(found + others)


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ("is_cuda_build = True\n", True),
        ("is_cuda_build = False\n", False),
        ("build_info = {'cuda_version': '10.1', 'is_cuda_build': True}\n", True),
        ("build_info = {'is_rocm_build': False, 'is_cuda_build': False}\n", False),
        ("is_rocm_build = True\n", None),
        ("", None),
    ],
)
def test_what_its_build_wrote_down(packages: Packages, info: str, found: bool | None) -> None:
    packages(package="tensorflow_core" if "build_info" in info else "tensorflow", info=info)
    assert image_program.built_with_cuda() is found


@pytest.mark.parametrize(
    ("library", "found"),
    [
        (_elf(".text", ".nv_fatbin", ".data"), True),
        (_elf(".text", ".data"), False),
        (_elf(".text", ".nv_fatbin_no"), False),
        (b"", None),
    ],
)
def test_whether_there_are_kernels(packages: Packages, library: bytes, found: bool | None) -> None:
    packages(library=library)
    assert image_program.has_kernels() is found


def test_the_versions_of_cuda_are_those_of_its_files_and_wheels(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages("nvidia_cuda_runtime_cu11-11.8.89.dist-info", "nvidia_cuda_nvcc_cu11-1.0.dist-info")
    monkeypatch.setattr(image_program, "LIBRARY_FOLDERS", "/none")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert image_program.cuda_runtimes() == ["11.8.89"]
    for name in ("libcudart.so.10.1.243", "libcudart.so.9.0.176", "libcudart_static.a"):
        (tmp_path / name).touch()
    (tmp_path / "libcudart.so.10.1").symlink_to("libcudart.so.10.1.243")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":/none:{tmp_path}")
    assert image_program.cuda_runtimes() == ["10.1.243", "11.8.89", "9.0.176"]


def test_mpirun_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program = tmp_path / "mpirun"
    program.write_text('#!/bin/sh\necho "mpirun (Open MPI) 4.1.4, asked for $1"\n')
    program.chmod(0o755)
    assert image_program.mpirun() == "mpirun (Open MPI) 4.1.4, asked for --version\n"
    program.write_text("#!/bin/sh\nexit 1\n")
    assert image_program.mpirun() == ""
