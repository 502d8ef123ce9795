"""Locks: what they must satisfy, how they are read, and every way in which --check fails."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.dockerfile.lockfile import HEADER, parse_lock
from imgbuild.dockerfile.requirements import (
    LockRequest,
    find_problems,
    find_stale,
    image_request,
    lock_family,
    lock_requests,
    mpi_request,
)
from imgbuild.dockerfile.resolve import resolve
from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project

SHA = "a" * 64
REQUEST = LockRequest("x.txt", "a test", "3.6", ("pip==21.3.1",), ("h5py<3",))


def _lock(body: str, request: LockRequest = REQUEST) -> str:
    return f"{HEADER}\n# a test\n# request: sha256:{request.digest}\n{body}"


def _entry(name: str, version: str) -> str:
    return f"{name}=={version} \\\n    --hash=sha256:{SHA}\n"


def test_conditions_choose_by_version(images: dict[str, Image]) -> None:
    old, new = images["tf-1.11-cpu-debian"], images["tf-2.2-cpu-debian"]
    assert "setuptools==39.1.0" in image_request(old).requirements
    assert "setuptools==59.6.0" in image_request(new).requirements
    assert "gast==0.2.2" in image_request(old).constraints
    assert "gast==0.3.3" in image_request(new).constraints


def test_tensorflow_has_the_name_of_its_cpu_build(images: dict[str, Image]) -> None:
    assert image_request(images["tf-1.14-cpu-debian"]).requirements[0] == "tensorflow==1.14.0"
    assert image_request(images["tf-1.15-cpu-debian"]).requirements[0] == "tensorflow-cpu==1.15.0"


def test_an_mpi_of_the_index_has_a_lock_of_its_own(images: dict[str, Image]) -> None:
    request = mpi_request(images["tf-1.12-cpu-debian-intelmpi"])
    assert request is not None
    assert request.requirements == ("impi-rt==2021.8.0", "impi-devel==2021.8.0")
    assert request == mpi_request(images["tf-2.3-cpu-debian-intelmpi"])
    assert mpi_request(images["tf-1.12-cpu-debian"]) is None
    assert mpi_request(images["tf-1.12-cpu-ubuntu"]) is None


def test_a_lock_is_shared_not_repeated(matrix: Matrix) -> None:
    names = [request.file_name for request in lock_requests(all_images(matrix))]
    # One an image variant of each TensorFlow, whatever its stack, one for building, one for MPI.
    assert len(names) == len({*names}) == 22


def test_the_committed_locks_satisfy_the_matrix(matrix: Matrix, project: Project) -> None:
    family = lock_family(matrix)
    assert find_problems(family.requests, project.locks, family.names) == []


def test_a_changed_constraint_makes_the_lock_stale(
    edited: Callable[..., Path], project: Project
) -> None:
    matrix = load_matrix(edited("h5py==2.10.0", "h5py==2.9.0"))
    family = lock_family(matrix)
    problems = find_problems(family.requests, project.locks, family.names)
    assert len(problems) == 20
    assert problems[0] == (
        "tf-1.10.0-py3.6-cpu.txt: has h5py 2.10.0; the matrix requires h5py==2.9.0"
    )


def test_a_changed_tensorflow_lacks_its_lock(edited: Callable[..., Path], project: Project) -> None:
    path = edited("  2.2.0:\n", "  2.2.3:\n")
    path.write_text(re.sub(r"tensorflow: 2\.2\.0\b", "tensorflow: 2.2.3", path.read_text()))
    family = lock_family(load_matrix(path))
    problems = find_problems(family.requests, project.locks, family.names)
    assert problems[0].startswith("tf-2.2.3-py3.6-cpu.txt: No such file")
    assert "tf-2.2.0-py3.6-cpu.txt: belongs to no image of the matrix" in problems


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", "x.txt: pip is missing; the matrix requires pip==21.3.1"),
        (_entry("pip", "20.0"), "x.txt: has pip 20.0; the matrix requires pip==21.3.1"),
        (
            _entry("pip", "21.3.1") + _entry("H5PY", "3.1.0"),
            "x.txt: has h5py 3.1.0; the matrix allows only h5py<3",
        ),
    ],
)
def test_check_names_what_is_unmet(tmp_path: Path, body: str, expected: str) -> None:
    (tmp_path / "x.txt").write_text(_lock(body))
    assert find_problems([REQUEST], tmp_path) == [expected]


def test_check_names_a_lock_made_for_other_requirements(tmp_path: Path) -> None:
    other = LockRequest("x.txt", "a test", "3.7", REQUEST.requirements, REQUEST.constraints)
    (tmp_path / "x.txt").write_text(_lock(_entry("pip", "21.3.1"), other))
    assert "made for other requirements" in find_problems([REQUEST], tmp_path)[0]


@pytest.mark.parametrize(
    "line",
    [
        "pip==21.3.1\n",
        "pip>=21 \\\n    --hash=sha256:" + SHA + "\n",
        "pip==21.3.1 \\\n    --hash=sha256:abc\n",
        "pip==21.3.1 \\\n    --hash=md5:" + SHA + "\n",
        "--index-url https://example.org\n",
        "https://example.org/pip.whl\n",
        "pip==21.3.1 \\\n",
    ],
)
def test_an_entry_without_exact_version_and_sha256_is_refused(line: str) -> None:
    with pytest.raises(InputError, match=r"x\.txt:5: not an exact requirement"):
        parse_lock(_lock(f"\n{line}"), "x.txt")


def test_a_file_that_is_no_lock_is_refused() -> None:
    with pytest.raises(InputError, match="not a lock"):
        parse_lock("pip==21.3.1\n", "x.txt")


@pytest.fixture
def fake_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a shell script in uv's place."""

    def install(script: str) -> None:
        path = tmp_path / "uv"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr("uv.find_uv_bin", lambda: str(path))

    return install


def test_resolve_writes_once(tmp_path: Path, fake_uv: Callable[[str], None]) -> None:
    folder = tmp_path / "locks"
    fake_uv(f"cat > lock.txt <<'EOT'\n{_entry('pip', '21.3.1')}EOT")
    assert resolve(REQUEST, folder, upgrade=False)
    assert not resolve(REQUEST, folder, upgrade=False)
    assert find_problems([REQUEST], folder) == []


def test_resolve_keeps_the_old_lock_when_nothing_satisfies(
    tmp_path: Path, fake_uv: Callable[[str], None]
) -> None:
    fake_uv("echo 'because h5py<3 and h5py>=3 conflict' >&2; exit 1")
    (tmp_path / "x.txt").write_text("old")
    with pytest.raises(CheckFailedError, match=r"No set of packages satisfies x\.txt .*conflict"):
        resolve(REQUEST, tmp_path, upgrade=False)
    assert (tmp_path / "x.txt").read_text() == "old"


def test_resolve_says_when_the_index_is_out_of_reach(
    tmp_path: Path, fake_uv: Callable[[str], None]
) -> None:
    fake_uv("echo 'error sending request for url' >&2; exit 2")
    with pytest.raises(MachineError, match="cannot be reached"):
        resolve(REQUEST, tmp_path, upgrade=False)


def test_stale_locks_are_those_of_no_image(tmp_path: Path) -> None:
    for name in ("x.txt", "y.txt", "notes.md"):
        (tmp_path / name).write_text("")
    assert find_stale(["x.txt"], tmp_path) == [tmp_path / "y.txt"]
