"""Which files of packages an extension gets: data that is fetched before, in order to be built."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.build.source_metadata import MetadataReader
from imgbuild.core.errors import MachineError
from imgbuild.core.files import file_sha256
from imgbuild.core.project import Project
from imgbuild.extend.base_image import BaseImage
from imgbuild.extend.distributions import distributions_context, find_distributions
from imgbuild.locks.lockfile import Lock
from imgbuild.locks.resolver import PackageMetadata
from imgbuild.matrix.model import Matrix
from imgbuild.net.sites import Sites
from support.hostile_package import HostileIndex

BASE = BaseImage("me/base:1", "me/base:1", "3.6.15", "2.36", "debian-12", {}, {})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostileIndex:
    (made := HostileIndex(tmp_path / "index")).folder.mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(made.folder))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


@contextmanager
def reader_of(
    matrix: Matrix, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MetadataReader]:
    """Give a reader that knows what builds every package."""
    known = PackageMetadata(build_requires=("setuptools",))
    with MetadataReader(Project(folder), matrix, Sites(), lambda _: None) as reader:
        monkeypatch.setattr(reader, "read", lambda *_: known)
        yield reader


def test_files_and_build_tools_are_found(
    index: HostileIndex, matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are in the cache, no index is asked."""
    app, evil = index.wheel("app", "1.0"), index.source("evil", "1.0")
    tool = index.wheel("setuptools", "1.0")
    hashes = {"app": (file_sha256(app),), "evil": (file_sha256(evil),), "own": ("0" * 64,)}
    lock = Lock("", {"app": "1.0", "evil": "1.0", "own": "1.0"}, hashes, {"app": "", "evil": ""})
    wheels = ["dist/own-1.0-py3-none-any.whl"]
    with reader_of(matrix, tmp_path, monkeypatch) as reader:
        files = find_distributions(lock, wheels, BASE, reader, with_uv=False)
        assert [file.name for file in files] == [app.name, evil.name, tool.name]
        folder = distributions_context(files, reader.sites)
        assert folder
        assert {path.name for path in folder.iterdir()} == {app.name, evil.name, tool.name}
        for path in (app, evil, tool):
            path.unlink()
        assert find_distributions(lock, wheels, BASE, reader, with_uv=False) == files
        with pytest.raises(MachineError, match="did not give the files of the lock"):
            find_distributions(lock, [], BASE, reader, with_uv=False)
        reader.image_id = "sha256:other"  # which may need other build tools
        with pytest.raises(MachineError, match="did not give the files of the lock"):
            find_distributions(lock, wheels, BASE, reader, with_uv=False)
        assert find_distributions(Lock("", {}, {}), [], BASE, reader, with_uv=True) == ()
    assert distributions_context((), Sites()) is None
    assert not index.mark.exists()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_uv_is_for_the_machine_of_the_base(
    index: HostileIndex,
    matrix: Matrix,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
) -> None:
    digests = []
    for name in ("x86_64", "aarch64"):
        uv = index.wheel("uv", matrix.uv.version)
        tag = f"py3-none-manylinux_2_17_{name}.manylinux2014_{name}"
        own = uv.rename(uv.with_name(uv.name.replace("py3-none-any", tag)))
        own.write_bytes(own.read_bytes() + name.encode())
        digests.append(file_sha256(own))
    usual, arm64 = digests
    uv_of_both = matrix.uv.model_copy(update={"sha256": usual, "arm64": arm64})
    app = index.wheel("app", "1.0")
    lock = Lock("", {"app": "1.0"}, {"app": (file_sha256(app),)}, {"app": ""})
    base = replace(BASE, machine=machine)
    own_matrix = matrix.model_copy(update={"uv": uv_of_both})
    with reader_of(own_matrix, tmp_path, monkeypatch) as reader:
        files = find_distributions(lock, [], base, reader, with_uv=True)
    assert [file.name for file in files if machine in file.name]
    assert len(files) == 2


def test_only_files_of_the_lock_are_chosen(
    index: HostileIndex, matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may give the hash of a file that is not the best one."""
    wheel = index.wheel("app", "1.0")
    better = index.folder / "app-1.0-cp36-cp36m-manylinux1_x86_64.whl"
    better.write_bytes(wheel.read_bytes() + b" ")
    lock = Lock("", {"app": "1.0"}, {"app": (file_sha256(wheel),)}, {"app": ""})
    with reader_of(matrix, tmp_path, monkeypatch) as reader:
        (file,) = find_distributions(lock, [], BASE, reader, with_uv=False)
    assert file.name == wheel.name
