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
    Scope,
    family_problems,
    lock_family,
    lock_problems,
    requests_of,
    resolve,
    write_locks,
)
from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Condition, Matrix
from imgbuild.project import Project
from imgbuild.sites import Sites

SHA = "a" * 64
REQUEST = LockRequest("x.txt", "a test", "3.6", ("pip==21.3.1",), ("h5py<3",))
FakeUv = Callable[[str], None]


def _lock(body: str, request: LockRequest = REQUEST) -> str:
    return f"{HEADER}\n# a test\n# request: sha256:{request.digest}\n{body}"


def _entry(name: str, version: str) -> str:
    return f"{name}=={version} \\\n    --hash=sha256:{SHA}\n"


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


def test_headers_of_an_mpi_do_not_bring_the_run_time_of_their_release(
    images: dict[str, Image],
) -> None:
    packages, _, mpi = requests_of(images["tf-1.12-gpu-ubuntu"])
    assert mpi.requirements == ("impi==2018.0.3", "impi-devel==2021.8.0")
    assert (packages.alone, mpi.alone) == (False, True)


def test_the_keras_2_of_a_release_takes_the_image_s_own_tensorflow(
    images: dict[str, Image],
) -> None:
    packages = requests_of(images["tf-2.21-cpu-debian"])[0]
    assert "tf-keras==2.21.0" in packages.requirements
    assert packages.provided == ("tensorflow",)
    assert packages.platform == "x86_64-manylinux_2_36", "the wheel needs more than 2.17"


def test_a_stack_has_its_locks_and_leaves_the_others_alone(matrix: Matrix) -> None:
    debian, ubuntu = lock_family(matrix, "debian"), lock_family(matrix, "ubuntu")
    assert (debian.pythons, [*ubuntu.pythons]) == ({}, ["3.6.2"])
    assert debian.names == ubuntu.names == lock_family(matrix).names
    assert len(debian.requests) == len({request.file_name for request in debian.requests})
    with pytest.raises(InputError, match="'rhel'"):
        lock_family(matrix, "rhel")


def test_the_committed_locks_satisfy_the_matrix(matrix: Matrix, project: Project) -> None:
    assert family_problems(lock_family(matrix), project.locks) == []


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


def test_a_lock_made_for_other_requirements_or_for_no_image(tmp_path: Path) -> None:
    other = replace(REQUEST, python="3.7")
    (tmp_path / "x.txt").write_text(_lock(_entry("pip", "21.3.1"), other))
    assert "made for other requirements" in lock_problems(REQUEST, tmp_path)[0]
    (tmp_path / "notes.md").touch()
    family = LockFamily((), {}, frozenset())
    assert family_problems(family, tmp_path) == ["x.txt: belongs to no image of the matrix"]


FINE = _entry("six", "1.0")
REFUSED = "not an exact requirement"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (_lock(f"{FINE}pip==21.3.1\n"), f"6: {REFUSED}"),
        (_lock(f"{FINE}pip==21.3.1 \\\n    --hash=sha256:abc\n"), f"6: {REFUSED}"),
        (_lock(f"{FINE}pip==21.3.1 \\\n    --hash=md5:{SHA}\n"), f"6: {REFUSED}"),
        (_lock(f"{FINE}pip>=21 \\\n    --hash=sha256:{SHA}\n"), f"6: {REFUSED}"),
        (_lock(f"{FINE}--index-url https://x.org\n"), f"6: {REFUSED}"),
        (_lock(FINE + _entry("pip", "9" * 5000)), f"6: {REFUSED}"),
        (_lock(FINE + _entry("h5py", "2.10.0") + _entry("H5PY", "3.1.0")), "8: h5py is in this"),
        (FINE, "1: not a lock of `imgbuild lock`"),
    ],
)
def test_what_is_no_lock_is_refused_with_its_line(text: str, fault: str) -> None:
    with pytest.raises(InputError, match=f"x.txt:{fault}"):
        parse_lock(text, "x.txt")
    whole = _lock(f"\n{FINE}\n{_entry('pip', '21.3.1')}")
    assert parse_lock(whole, "x.txt").versions == {"six": "1.0", "pip": "21.3.1"}


def test_only_a_lock_that_is_missing_is_made_anew(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x: No such file or directory.* `imgbuild lock`"):
        lock_text(tmp_path / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(InputError, match=r"x: Is a directory.* git"):
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
    asked = tmp_path / "asked"
    words = f'[ -z "$VIRTUAL_ENV" ] || exit 1\necho "$@" > {asked}'
    fake_uv(f"{words}\ncat > lock.txt <<'EOT'\n{body}EOT")
    text = resolve(REQUEST, tmp_path, upgrade=False)
    assert not list(tmp_path.glob("*.txt"))
    assert "--no-deps" not in asked.read_text()
    resolve(replace(REQUEST, alone=True), tmp_path, upgrade=False)
    assert "--no-deps" in asked.read_text()
    fake_uv(
        f"case \" $* \" in *' --override overrides.txt '*) cp overrides.txt {asked};; esac\n"
        f"cat > lock.txt <<'EOT'\n{body}EOT"
    )
    resolve(replace(REQUEST, provided=("tensorflow",)), tmp_path, upgrade=False)
    assert asked.read_text() == "tensorflow; sys_platform == 'never'\n"
    (tmp_path / "x.txt").write_text(text)
    assert resolve(REQUEST, tmp_path, upgrade=False) == text
    assert lock_problems(REQUEST, tmp_path) == []


@pytest.mark.parametrize(
    ("scope", "resolved"),
    [("stale", ["stale.txt", "new.txt"]), ("all", ["x.txt", "stale.txt", "new.txt"])],
)
def test_only_what_is_not_current_is_resolved(
    tmp_path: Path, fake_uv: FakeUv, scope: Scope, resolved: list[str]
) -> None:
    body, log = _entry("pip", "21.3.1"), list[str]()
    fake_uv(f"cat > lock.txt <<'EOT'\n{body}EOT")
    requests = tuple(replace(REQUEST, file_name=name) for name in ("x.txt", "stale.txt", "new.txt"))
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / "x.txt").write_text(_lock(body))
    (folder / "stale.txt").write_text(_lock(_entry("pip", "20.0")))
    (folder / "gone.txt").write_text("of no image")
    family = LockFamily(requests, {}, frozenset(one.file_name for one in requests))
    changed, unread = write_locks(family, folder, Sites(), log.append, scope)
    assert sorted(log) == sorted(f"resolving {name}" for name in resolved)
    assert {path.name for path in changed} == {"stale.txt", "new.txt", "gone.txt"}
    assert (unread, family_problems(family, folder)) == ([], [])


def test_no_lock_is_written_if_one_cannot_be_resolved(tmp_path: Path, fake_uv: FakeUv) -> None:
    body = _entry("pip", "21.3.1")
    fake_uv(f"grep -q h5py constraints.txt || exit 1; cat > lock.txt <<'EOT'\n{body}EOT")
    requests = (REQUEST, replace(REQUEST, file_name="y.txt", constraints=()))
    family = LockFamily(requests, {}, frozenset(one.file_name for one in requests))
    (folder := tmp_path / "locks").mkdir()
    with pytest.raises(CheckFailedError, match=r"No set of packages satisfies y\.txt"):
        write_locks(family, folder, Sites(), lambda _: None)
    assert not [*folder.iterdir()]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo 'because h5py<3 and h5py>=3 conflict' >&2; exit 1", CheckFailedError),
        ("echo 'error sending request for url' >&2; exit 2", MachineError),
    ],
)
def test_a_failed_resolution_keeps_the_old_lock(
    tmp_path: Path, fake_uv: FakeUv, script: str, error: type[Exception]
) -> None:
    fake_uv(script)
    (tmp_path / "x.txt").write_text("old")
    with pytest.raises(error, match=r"x\.txt.*(conflict|error sending)"):
        resolve(REQUEST, tmp_path, upgrade=False)
    assert (tmp_path / "x.txt").read_text() == "old"


def test_a_resolution_has_an_end(
    tmp_path: Path, fake_uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgbuild.dockerfile.requirements.TIMEOUT_SECONDS", 0.2)
    fake_uv("exec tail -f /dev/null")
    with pytest.raises(MachineError, match=r"0\.2 s"):
        resolve(REQUEST, tmp_path, upgrade=False)
