"""Locks for arm64: the versions of amd64's where there are files of them, else said so."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.locks.lockfile import read_lock
from imgbuild.locks.requirements import (
    LockFamily,
    LockRequest,
    check_family,
    check_lock,
    lock_family,
    write_locks,
)
from imgbuild.matrix.model import Matrix, Pin
from imgbuild.net.sites import Sites
from support.fake_uv import no_metadata, no_requirements
from support.hostile_package import HostileIndex

AMD64 = "py3-none-manylinux2014_x86_64"
ARM64 = "py3-none-manylinux2014_aarch64"
USUAL = LockRequest("x.txt", "a test", "3.11", ("tensor-cpu==1.0", "app"))
OTHER = replace(
    USUAL,
    file_name="x-arm64.txt",
    requirements=("tensor==1.0", "app"),
    platform="aarch64-manylinux_2_36",
    like="x.txt",
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostileIndex:
    """Return an index with two TensorFlows; app needs a package with a program, and a newer one."""
    (folder := tmp_path / "index").mkdir()
    made = HostileIndex(folder)
    _offer(made, "tensor-cpu", {"1.0": AMD64})
    _offer(made, "tensor", {"1.0": ARM64})
    _offer(made, "app", {"1.0": "py3-none-any"}, "server", "newer")
    _offer(made, "server", {"1.0": AMD64})
    _offer(made, "server", {"1.0": "py3-none-any"})
    _offer(made, "newer", {"2.0": AMD64})
    _offer(made, "newer", {"1.0": ARM64})
    for name, value in {"UV_OFFLINE": "1", "XDG_CONFIG_HOME": str(tmp_path / "config")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    return made


def _offer(index: HostileIndex, name: str, files: Mapping[str, str], *requires: str) -> None:
    for version, tag in files.items():
        path = index.wheel(name.replace("-", "_"), version, *requires)
        path.rename(path.with_name(path.name.replace("py3-none-any", tag)))


def _write(folder: Path, *requests: LockRequest) -> list[str]:
    family = LockFamily(requests, {}, frozenset(request.file_name for request in requests))
    log = list[str]()
    write_locks(family, folder, Sites(), log.append, no_metadata, no_requirements)
    assert check_family(family, folder) == []
    return log


def test_a_lock_for_arm64_says_how_it_differs(index: HostileIndex, tmp_path: Path) -> None:
    (folder := tmp_path / "locks").mkdir()
    assert _write(folder, OTHER, USUAL) == ["resolving x.txt", "resolving x-arm64.txt"]
    usual, other = read_lock(folder / "x.txt"), read_lock(folder / "x-arm64.txt")
    assert usual.unlike == ()
    assert {*other.unlike} == {
        "newer is 1.0 instead of 2.0",
        "server 1.0 has no compiled files for aarch64",
        "tensor 1.0 is added",
        "tensor-cpu 1.0 is left out",
    }
    assert usual.versions["server"] == other.versions["server"] == "1.0"
    assert _write(folder, OTHER, USUAL) == [], "nothing is resolved twice"

    _offer(index, "app", {"2.0": "py3-none-any"}, "server", "newer")
    (folder / "x-arm64.txt").unlink()
    _write(folder, OTHER, USUAL)
    assert read_lock(folder / "x-arm64.txt").versions["app"] == "1.0", "as on amd64"


def test_a_lock_for_arm64_is_out_of_date_if_amd64_moves(
    index: HostileIndex, tmp_path: Path
) -> None:
    (folder := tmp_path / "locks").mkdir()
    _write(folder, USUAL, OTHER)
    _offer(index, "app", {"2.0": "py3-none-any"}, "server", "newer")
    newer = replace(USUAL, constraints=("app>=2",))
    assert _write(folder, newer, OTHER) == ["resolving x.txt", "resolving x-arm64.txt"]
    assert read_lock(folder / "x-arm64.txt").versions["app"] == "2.0"
    lock = folder / "x.txt"
    lock.write_text(lock.read_text("utf-8").replace("app==2.0", "app==1.0"), "utf-8")
    [problem] = check_lock(OTHER, folder)
    assert problem == "x-arm64.txt: out of date: unlike x.txt, app is 2.0 instead of 1.0"


@pytest.mark.usefixtures("index")
def test_statements_about_other_versions_are_true(tmp_path: Path) -> None:
    (folder := tmp_path / "locks").mkdir()
    _write(folder, USUAL, OTHER)
    lock = folder / "x-arm64.txt"
    right = lock.read_text("utf-8")
    lock.write_text(right.replace("newer is 1.0 instead of 2.0", "app is 1.0 instead of 2.0"))
    assert check_lock(OTHER, folder) == [
        "x-arm64.txt: out of date: unlike x.txt, newer is 1.0 instead of 2.0",
        "x-arm64.txt: out of date: states that, unlike x.txt, app is 1.0 instead of 2.0",
    ]
    lock.write_text(right)
    (folder / "x.txt").write_text("not a lock\n")
    assert check_lock(OTHER, folder) == [], "the problem is the other lock's"
    assert len(check_lock(USUAL, folder)) == 1


def test_a_lock_for_arm64_follows_the_lock_that_stacks_share(matrix: Matrix) -> None:
    """Also if no row of the stack is for arm64, and whatever the row's Python is."""
    rows = []
    for row in matrix.images:
        if row.tensorflow == "2.12.1":
            rows.append(row.model_copy(update={"stack": "ubuntu", "architectures": ("amd64",)}))
            python = Pin(version="3.8.18")
            rows.append(row.model_copy(update={"python": python}))
        rows.append(row)
    changed = matrix.model_copy(update={"images": tuple(rows)})
    requests = {request.file_name: request for request in lock_family(changed, "ubuntu").requests}
    name = "tf-2.12.1-py3.11-cpu"
    assert requests[f"{name}-arm64.txt"].like == f"{name}.txt"
    every = {request.file_name: request for request in lock_family(changed).requests}
    compiled = every["tf-2.12.1-py3.8-cpu-arm64.txt"]
    assert compiled.platform == "aarch64-manylinux2014"
    assert compiled.target.machine == "aarch64"


def test_the_committed_locks_for_arm64_differ_in_their_tensorflow_alone(
    matrix: Matrix, project: Project
) -> None:
    requests = [request for request in lock_family(matrix).requests if request.like]
    assert requests
    for request in requests:
        usual = read_lock(project.locks / request.like)
        other = read_lock(project.locks / request.file_name)
        names = usual.versions.keys() ^ other.versions.keys()
        assert all(name.startswith("tensorflow") for name in names), names
        for name in usual.versions.keys() & other.versions.keys():
            assert usual.versions[name] == other.versions[name], name
        assert "tensorboard-data-server" in other.unlike[-1]
