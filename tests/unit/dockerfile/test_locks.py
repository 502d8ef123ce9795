"""Locks: what they must satisfy, how they are read and resolved, and every way --check fails."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.dockerfile.lockfile import (
    HEADER,
    lock_text,
    package_layers,
    parse_lock,
    read_lock,
    require_layer_as_named,
)
from imgbuild.dockerfile.requirements import (
    LockFamily,
    LockRequest,
    family_problems,
    lock_family,
    lock_problems,
    requests_of,
    resolve,
)
from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Condition, Matrix
from imgbuild.project import Project
from releases import release_of

SHA = "a" * 64
REQUEST = LockRequest("x.txt", "a test", "3.6", ("pip==21.3.1",), ("h5py<3",))
FakeUv = Callable[[str], None]


def _lock(body: str, request: LockRequest = REQUEST) -> str:
    return f"{HEADER}\n# a test\n# request: sha256:{request.digest}\n{body}"


def _entry(name: str, version: str) -> str:
    return f"{name}=={version} \\\n    --hash=sha256:{SHA}\n"


def test_requirements_hold_for_a_range_of_versions(images: dict[str, Image]) -> None:
    old, new = (requests_of(images[f"tf-{minor}-cpu-debian"])[0] for minor in ("1.11", "2.2"))
    assert {"tensorflow==1.11.0", "setuptools==39.1.0"} <= {*old.requirements}
    assert {f"tensorflow-cpu=={release_of('2.2')}", "setuptools==59.6.0"} <= {*new.requirements}
    assert "setuptools==59.6.0" not in old.requirements
    assert ("gast==0.2.2" in old.constraints, "gast==0.3.3" in new.constraints) == (True, True)


def test_constraints_may_hold_for_some_pythons(images: dict[str, Image]) -> None:
    image = images["tf-2.2-cpu-debian"]
    fields = {"tensorflow": ">=2", "why": "a test"}
    conditions = tuple(
        Condition.model_validate({"require": "six<2", "python": python, **fields})
        for python in (">=3.7", ">=3.6")
    )
    matrix = image.matrix.model_copy(update={"constraints": conditions[:1]})
    assert requests_of(replace(image, matrix=matrix))[0].constraints == ()
    matrix = image.matrix.model_copy(update={"constraints": conditions})
    assert requests_of(replace(image, matrix=matrix))[0].constraints == ("six<2",)


def test_an_mpi_of_the_index_has_its_own_lock(images: dict[str, Image]) -> None:
    request = requests_of(images["tf-1.12-cpu-debian-intelmpi"])[2]
    assert request.requirements == ("impi-rt==2021.8.0", "impi-devel==2021.8.0")
    assert request in requests_of(images["tf-2.3-cpu-debian-intelmpi"])
    assert len(requests_of(images["tf-1.12-cpu-debian"])) == 2


def test_headers_of_an_mpi_do_not_bring_the_run_time_of_their_release(
    images: dict[str, Image], project: Project
) -> None:
    image = images["tf-1.12-gpu-ubuntu"]
    request = requests_of(image)[2]
    assert request.requirements == ("impi==2018.0.3", "impi-devel==2021.8.0")
    assert request.alone
    assert not requests_of(image)[0].alone
    lock = read_lock(project.locks / request.file_name)
    assert lock.versions == {"impi": "2018.0.3", "impi-devel": "2021.8.0"}


def test_a_lock_is_shared(matrix: Matrix) -> None:
    names = [request.file_name for request in lock_family(matrix).requests]
    # One an image variant of each TensorFlow, whatever its stack, one for building, one an MPI,
    # one for what is compiled for a CUDA of the index.
    images = all_images(matrix)
    own = {(image.tensorflow, image.variant) for image in images}
    pythons = {image.python_minor for image in images}
    mpi = {image.mpi_lock_name for image in images if image.mpi_lock_name}
    cuda = {image.cuda_lock_name for image in images if image.cuda_lock_name}
    made = (("11.8", "3.8"), ("11.8", "3.11"), ("12.2", "3.11"))
    assert cuda == {f"cuda-{release}-nccl-2.16.5-py{python}.txt" for release, python in made}
    assert len(names) == len({*names}) == len(own) + len(pythons) + len(mpi) + len(cuda)


def test_a_stack_has_its_locks_and_leaves_the_others_alone(matrix: Matrix) -> None:
    debian, ubuntu = lock_family(matrix, "debian"), lock_family(matrix, "ubuntu")
    assert (debian.pythons, [*ubuntu.pythons]) == ({}, ["3.6.2"])
    assert debian.names == ubuntu.names == lock_family(matrix).names
    assert {
        "conda-3.6.2.txt",
        "build-py3.6.txt",
        f"tf-{release_of('2.2')}-py3.6-cpu.txt",
    } <= debian.names
    with pytest.raises(InputError, match="No stack is called 'rhel'; there are: "):
        lock_family(matrix, "rhel")


def test_the_committed_locks_satisfy_the_matrix(matrix: Matrix, project: Project) -> None:
    assert family_problems(lock_family(matrix), project.locks) == []


def test_a_lock_without_its_tensorflow_is_refused(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    image = images["tf-2.2-gpu-ubuntu"]
    lock = read_lock(project.locks / image.lock_name)
    text = (project.locks / image.lock_name).read_text(encoding="utf-8")
    without = text.replace(f"{lock.entries['tensorflow-gpu']}\n", "")
    (tmp_path / image.lock_name).write_text(without, encoding="utf-8")
    assert lock_problems(requests_of(image)[0], tmp_path) == [
        f"{image.lock_name}: tensorflow-gpu is missing; the matrix requires tensorflow-gpu==2.2.0"
    ]


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
def test_an_unmet_requirement_is_named(tmp_path: Path, body: str, expected: str) -> None:
    (tmp_path / "x.txt").write_text(_lock(body))
    assert lock_problems(REQUEST, tmp_path) == [expected]


def test_a_lock_that_is_missing_is_a_problem_without_advice_of_its_own(tmp_path: Path) -> None:
    """Whoever reports problems ends with one advice for all."""
    assert lock_problems(REQUEST, tmp_path) == ["x.txt: No such file or directory."]
    (tmp_path / "x.txt").write_text("pip==21.3.1\n")
    (problem,) = lock_problems(REQUEST, tmp_path)
    assert problem.startswith("x.txt:1: not a lock of `imgbuild lock`")


def test_a_lock_made_for_other_requirements_or_for_no_image(tmp_path: Path) -> None:
    other = LockRequest("x.txt", "a test", "3.7", REQUEST.requirements, REQUEST.constraints)
    (tmp_path / "x.txt").write_text(_lock(_entry("pip", "21.3.1"), other))
    assert "made for other requirements" in lock_problems(REQUEST, tmp_path)[0]
    (tmp_path / "notes.md").touch()
    family = LockFamily((), {}, frozenset())
    assert family_problems(family, tmp_path) == ["x.txt: belongs to no image of the matrix"]


LONG = f"pip=={'9' * 5000}"


@pytest.mark.parametrize(
    "requirement", ["pip==21.3.1", "pip>=21", "--index-url https://x.org", LONG]
)
@pytest.mark.parametrize("hashed", ["", "sha256:abc", f"md5:{SHA}", f"sha256:{SHA}"])
def test_only_an_exact_version_with_its_sha256_is_an_entry(requirement: str, hashed: str) -> None:
    lines = f"{requirement} \\\n    --hash={hashed}\n" if hashed else f"{requirement}\n"
    text = _lock(f"{_entry('six', '1.0')}\n{lines}")
    if (requirement, hashed) == ("pip==21.3.1", f"sha256:{SHA}"):
        assert parse_lock(text, "x.txt").versions == {"six": "1.0", "pip": "21.3.1"}
        return
    with pytest.raises(InputError, match=r"x\.txt:7: not an exact requirement"):
        parse_lock(text, "x.txt")


def test_a_package_is_in_a_lock_once() -> None:
    head = f"# request: sha256:{SHA}\n"
    text = head + _entry("h5py", "2.10.0") + _entry("H5PY", "3.1.0")
    with pytest.raises(InputError, match="x:4: h5py is in this lock already"):
        parse_lock(text, "x")


def test_only_a_lock_that_is_missing_is_made_anew(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x: No such file or directory\. Run `imgbuild lock`"):
        lock_text(tmp_path / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(InputError, match=r"x: Is a directory\. Make .* restore it from git"):
        lock_text(tmp_path / "x")


def test_layers_hold_each_package_once(images: dict[str, Image], project: Project) -> None:
    for image in images.values():
        left = dict(read_lock(project.locks / image.lock_name).entries)
        for layer in package_layers(image, project.locks):
            assert all(left.pop(package) in layer.text for package in layer.packages)
            assert layer.text.count("==") == len(layer.packages)


def test_equal_layers_are_one_committed_file(images: dict[str, Image], project: Project) -> None:
    def names(name: str) -> list[str]:
        return [layer.file_name for layer in package_layers(images[name], project.locks)]

    assert names("tf-1.14-cpu-debian") == names("tf-1.14-cpu-ubuntu")
    assert names("tf-2.2-cpu-ubuntu")[:-2] == names("tf-2.3-gpu-ubuntu")[:-2]
    old, new = names("tf-1.12-cpu-debian"), names("tf-2.2-cpu-debian")
    assert (old[0] == new[0], old[1] == new[1], len(old)) == (True, False, 4)  # NumPy; no SciPy
    files = {name for image in images for name in names(image)}
    assert files == {f"layers/{path.name}" for path in (project.locks / "layers").iterdir()}


def test_an_edited_layer_is_refused(project: Project, tmp_path: Path) -> None:
    (original, *_) = (project.locks / "layers").iterdir()
    path = f"locks/layers/{original.name}"
    require_layer_as_named(path, original)
    copy = tmp_path / original.name
    copy.write_text(original.read_text() + "evil==1.0\n")
    with pytest.raises(InputError, match="is not what its name says"):
        require_layer_as_named(path, copy)


@pytest.fixture
def fake_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    """Put a shell script in uv's place."""

    def install(script: str) -> None:
        path = tmp_path / "uv"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr("uv.find_uv_bin", lambda: str(path))

    return install


def test_resolve_returns_a_lock_that_satisfies(
    tmp_path: Path, fake_uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/one/that/happens/to/be/active")
    body = _entry("pip", "21.3.1")
    fake_uv(f"[ -z \"$VIRTUAL_ENV\" ] || exit 1\ncat > lock.txt <<'EOT'\n{body}EOT")
    text = resolve(REQUEST, tmp_path, upgrade=False)
    assert not list(tmp_path.glob("*.txt"))
    (tmp_path / "x.txt").write_text(text)
    assert resolve(REQUEST, tmp_path, upgrade=False) == text
    assert lock_problems(REQUEST, tmp_path) == []


@pytest.mark.parametrize(
    ("script", "error", "expected"),
    [
        (
            "echo 'because h5py<3 and h5py>=3 conflict' >&2; exit 1",
            CheckFailedError,
            r"No set of packages satisfies x\.txt .*conflict",
        ),
        ("echo 'error sending request for url' >&2; exit 2", MachineError, "cannot be reached"),
    ],
)
def test_a_failed_resolution_keeps_the_old_lock(
    tmp_path: Path, fake_uv: FakeUv, script: str, error: type[Exception], expected: str
) -> None:
    fake_uv(script)
    (tmp_path / "x.txt").write_text("old")
    with pytest.raises(error, match=expected):
        resolve(REQUEST, tmp_path, upgrade=False)
    assert (tmp_path / "x.txt").read_text() == "old"


def test_a_resolution_has_an_end(
    tmp_path: Path, fake_uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgbuild.dockerfile.requirements.TIMEOUT_SECONDS", 0.2)
    fake_uv("exec tail -f /dev/null")
    with pytest.raises(MachineError, match=r"uv gave no answer within 0\.2 s"):
        resolve(REQUEST, tmp_path, upgrade=False)
