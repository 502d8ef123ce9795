"""Intel MPI's stand-in: the layout of 2018, and an installer that asks for the licence."""

from __future__ import annotations

import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from standin.intel import _archive, _archives, intel_version
from standin.intel_layout import layout

if TYPE_CHECKING:
    from pathlib import Path

    from imgbuild.matrix.model import Matrix
    from standin.deb import Member

VERSION = "2018.3.222"
HOME = f"compilers_and_libraries_{VERSION}/linux/mpi"
ELF = b"\x7fELF\0/usr/local/lib/libfabric\0"
WHEELS = {
    "bin/mpirun": (b"#!/bin/sh\n", 0o755),
    "bin/mpigxx": (b"#!/bin/bash\nprefix=I_MPI_SUBSTITUTE_INSTALLDIR\n", 0o755),
    "bin/IMB-MPI1": (b"benchmark", 0o755),
    "include/mpi.h": (b"/* */", 0o644),
    "lib/libmpi.so": (b"\x7fELF", 0o644),
    "lib/libmpi.so.12": (b"\x7fELF", 0o644),
    "lib/libmpi.so.12.0.0": (b"\x7fELF", 0o644),
    "lib/libmpicxx.so": (b"\x7fELF", 0o644),
    "lib/libmpicxx.so.12": (b"\x7fELF", 0o644),
    "lib/libfabric/libfabric.so": (ELF, 0o644),
    "lib/libfabric/libfabric.so.1": (ELF, 0o644),
    "lib/libfabric/prov/libtcp-fi.so": (b"\x7fELF", 0o644),
    "lib/libfabric/prov/libpsm3-fi.so": (b"\x7fELF", 0o644),
}


@pytest.fixture(scope="module")
def files() -> dict[str, Member]:
    return layout(VERSION, WHEELS)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    archive = tmp_path / "l_mpi.tgz"
    archive.write_bytes(_archive("l_mpi", VERSION, "a licence", WHEELS))
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    config = tmp_path / "l_mpi" / "silent.cfg"
    text = config.read_text().replace("=/opt/intel", f"={tmp_path}/opt")
    config.write_text(text)
    return tmp_path / "l_mpi"


def install(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(folder / "install.sh"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_library_is_in_release_mt(files: dict[str, Member]) -> None:
    assert files[f"{HOME}/intel64/lib/release_mt/libmpi.so.12.0.0"].content
    assert files[f"{HOME}/intel64/lib/libmpi.so.12"].link == "release_mt/libmpi.so.12.0.0"
    assert files[f"{HOME}/intel64/lib/libmpicxx.so"].link == "libmpicxx.so.12"
    assert files[f"{HOME}/lib64"].link == "intel64/lib"


def test_no_placeholder_is_left(files: dict[str, Member]) -> None:
    script = files[f"{HOME}/intel64/bin/mpigxx"].content.decode()
    assert f"prefix=/opt/intel/{HOME}\n" in script


def test_libfabric_finds_its_providers_without_environment(files: dict[str, Member]) -> None:
    library = files[f"{HOME}/intel64/lib/libfabric.so.1"].content
    assert b"\0/opt/intel/fi\0" in library
    assert len(library) == len(ELF)
    assert files["fi"].link == f"{HOME}/intel64/lib/libfabric/prov"
    assert f"{HOME}/intel64/lib/libfabric/prov/libtcp-fi.so" in files
    assert f"{HOME}/intel64/lib/libfabric/prov/libpsm3-fi.so" not in files


def test_there_is_ballast_to_remove(files: dict[str, Member]) -> None:
    assert f"{HOME}/intel64/lib/debug_mt/libmpi.so.12.0" in files
    assert f"{HOME}/intel64/bin/IMB-MPI1" not in files


def test_the_licence_must_be_accepted(unpacked: Path) -> None:
    refused = install(unpacked, "-s", str(unpacked / "silent.cfg"), "--arch=intel64")
    assert refused.returncode != 0
    assert "ACCEPT_EULA" in refused.stderr


def test_it_asks_for_a_configuration(unpacked: Path) -> None:
    assert "silent.cfg" in install(unpacked).stderr


def test_archives_are_those_of_the_matrix(matrix: Matrix) -> None:
    ((path, (version, _)),) = _archives(matrix).items()
    assert path.endswith(f"l_mpi_{version}.tgz")
    assert intel_version() == "2021.8"
