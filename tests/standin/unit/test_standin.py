"""What puts the stand-ins together: the cache, the old compiler, the settings, the symbols."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from imgbuild.inputs.oci_layout import write_layout
from imgbuild.settings import Settings, load_settings
from standin.base_image import _write_rootfs
from standin.collect_symbols import Found, collect_horovod, collect_wheel, library_of
from standin.context import Context, sha256_of
from standin.open_mpi import _repack
from standin.settings_file import settings_of, write_settings
from standin.signing import SigningKey
from standin.ubuntu import _git_version, _wrapper
from standin.upstreams import Site, StandIns

if TYPE_CHECKING:
    from pathlib import Path

    from imgbuild.matrix.model import Matrix
    from imgbuild.project import Project


@pytest.fixture
def context(
    project: Project, matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Context:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Context(project, matrix, Settings(), None, lambda _: None)


@pytest.fixture
def gcc(tmp_path: Path) -> Path:
    wrapper = tmp_path / "g++-4.8"
    wrapper.write_text(_wrapper("g++", "4.8", "4.8.5"))
    wrapper.chmod(0o755)
    return wrapper


def test_a_standin_is_made_once(context: Context) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)

    first = context.stored("x", {"a": 1}, ("context.py",), make)
    assert context.stored("x", {"a": 1}, ("context.py",), make) == first
    assert len(made) == 1
    assert context.stored("x", {"a": 2}, ("context.py",), make) != first
    assert context.stored("x", {"a": 1}, ("server.py",), make) != first


def test_settings_are_valid_and_name_every_download(context: Context, tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    archive = tmp_path / "www" / "a-1.tar.gz"
    archive.write_bytes(b"x")
    key = SigningKey(tmp_path / "key")
    sites = (Site("ubuntu", tmp_path / "www", key), Site("open-mpi", tmp_path / "www"))
    standins = StandIns(sites, {"ubuntu-18.04": tmp_path}, {"git": "2.39.5"})
    path = tmp_path / "standin.yaml"
    write_settings(path, settings_of(context, standins, "http://172.17.0.1:8473"))
    settings = load_settings(path)
    assert settings.mirrors["ubuntu"].url == "http://172.17.0.1:8473/ubuntu/"
    assert settings.mirrors["ubuntu"].keyring is None, "the base image holds it"
    assert settings.mirrors["open-mpi"].keyring is None
    assert settings.substitutes == {archive.name: sha256_of(archive)}
    assert settings.standin
    assert settings.standin.versions == {"git": "2.39.5"}


def test_the_base_has_other_files_and_debians_sources_beside(tmp_path: Path) -> None:
    rootfs = tmp_path / "rootfs.tar"
    with tarfile.open(rootfs, "w") as archive:
        for name, content in (("usr/lib/os-release", b"ID=debian"), ("etc/apt/sources.list", b"d")):
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    write_layout(tmp_path / "layout", rootfs, tag="c", epoch=0)
    changes = {"usr/lib/os-release": b"ID=ubuntu", "etc/apt/sources.list": b"u", "etc/new": b"n"}
    _write_rootfs(tmp_path / "layout", tmp_path / "out.tar", changes)
    with tarfile.open(tmp_path / "out.tar") as archive:
        found = {e.name: archive.extractfile(e) for e in archive}
        read = {name: stream.read() for name, stream in found.items() if stream}
    assert read == {
        "./usr/lib/os-release": b"ID=ubuntu",
        "./etc/apt/sources.list": b"u",
        "./etc/apt/sources.list.d/debian.list": b"d",
        "./etc/new": b"n",
    }


@pytest.mark.parametrize("name", ["ubuntu-16.04", "ubuntu-18.04"])
def test_git_has_the_pinned_version(matrix: Matrix, name: str) -> None:
    system = matrix.operating_systems[name]
    assert system.pins.git
    assert _git_version(system).startswith(f"1:{system.pins.git.version}-")


def test_the_old_compiler_says_that_it_is_old(gcc: Path) -> None:
    def said(*options: str) -> str:
        command = [str(gcc), *options]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        ).stdout

    assert said("-dumpversion") == "4.8.5\n"
    assert '#define __VERSION__ "4.8.5"' in said("-dM", "-E", "-x", "c++", "-")
    assert "stand-in" in said("--version")


def test_the_old_compiler_uses_its_own_headers(gcc: Path, tmp_path: Path) -> None:
    fake = tmp_path / "g++"
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [str(gcc), "-c", "a.cc"], env=environment, capture_output=True, text=True, check=True
    )
    folder = "/usr/lib/gcc/stand-in-4.8"
    assert ran.stdout == f"-I{folder} -include {folder}/implicit.h -c a.cc\n"


def test_a_source_unpacks_to_the_folder_of_its_name(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("openmpi-4.1.4/configure")
        entry.size, entry.mode = 2, 0o755
        archive.addfile(entry, io.BytesIO(b"#!"))
    targets = [tmp_path / "openmpi-3.1.2.tar.gz", tmp_path / "b" / "openmpi-3.1.2.tar.gz"]
    targets[1].parent.mkdir()
    for target in targets:
        _repack(packed.getvalue(), target)
    with tarfile.open(targets[0]) as archive:
        assert archive.getnames() == ["openmpi-3.1.2/configure"]
    assert targets[0].read_bytes() == targets[1].read_bytes()


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("cublasCreate_v2", "cublas"),
        ("cudaMalloc", "cudart"),
        ("__cudaRegisterVar", "cudart"),
        ("cuInit", "cuda"),
        ("cudnnCreate", "cudnn"),
        ("ncclBcast", "nccl"),
        ("cucumber", None),
    ],
)
def test_a_function_belongs_to_a_library(name: str, library: str | None) -> None:
    assert library_of(name) == library


def test_symbols_are_whole_strings_of_shared_libraries(tmp_path: Path) -> None:
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a.so", b"\0cuInit\0no cuFree here\0__cudaRegisterLinkedBinary_x\0")
        archive.writestr("a.py", b"\0cuMemAlloc\0")
    found: Found = defaultdict(set)
    collect_wheel(wheel, "9.0", found)
    assert dict(found) == {("9.0", "cuda"): {"cuInit"}}


def test_symbols_of_horovod_are_its_calls(tmp_path: Path) -> None:
    sdist = tmp_path / "horovod-1.tar.gz"
    text = b"x = ncclBcast(a); // cudaFree\n"
    with tarfile.open(sdist, "w:gz") as archive:
        entry = tarfile.TarInfo("horovod-1/horovod/common/a.cc")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    found: Found = defaultdict(set)
    collect_horovod(sdist, found)
    assert dict(found) == {("horovod", "nccl"): {"ncclBcast"}}
