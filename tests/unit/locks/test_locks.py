"""Locks: what they must satisfy, how they are read and resolved, and every way --check fails."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.locks.lockfile import (
    HEADER,
    package_layers,
    parse_lock,
    read_lock,
    read_lock_text,
)
from imgbuild.locks.requirements import (
    LockFamily,
    LockRequest,
    check_family,
    check_lock,
    lock_family,
    lock_requests,
    resolve_lock,
    write_locks,
)
from imgbuild.locks.resolver import call_uv
from imgbuild.matrix.images import Image, with_other_architectures
from imgbuild.matrix.model import Matrix
from imgbuild.net.sites import Sites
from support.fake_uv import no_metadata, no_requirements, write_fake_uv

SHA = "a" * 64
REQUEST = LockRequest("x.txt", "a test", "3.6", ("pip==21.3.1",), ("h5py<3",))
FakeUv = Callable[[str], None]
READERS = (no_metadata, no_requirements)
REFUSED = "not NAME==VERSION with a sha256"


def _lock(body: str, request: LockRequest = REQUEST) -> str:
    return f"{HEADER}\n# a test\n# request: sha256:{request.digest}\n{body}"


def _entry(name: str, version: str) -> str:
    return f"{name}=={version} \\\n    --hash=sha256:{SHA}\n"


FINE, PIP = _entry("six", "1.0"), _entry("pip", "21.3.1")
WRITE_PIP = f"cat > lock.txt <<'EOT'\n{PIP}EOT"


def test_call_uv_reads_no_settings_above_its_folder(tmp_path: Path) -> None:
    """Everybody can write into the folder above, such as /tmp."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "uv.toml").write_text("index-url = 'http://127.0.0.1:9/simple'\nno-index = 1\n")
    (folder / "requirements.in").touch()
    result = call_uv(["--offline", "requirements.in"], folder, os.environ)
    assert (result.code, result.errors) == (0, "")


def test_a_stack_has_its_locks_and_leaves_the_others_alone(matrix: Matrix) -> None:
    debian, ubuntu = lock_family(matrix, "debian"), lock_family(matrix, "ubuntu")
    assert (debian.pythons, [*ubuntu.pythons]) == ({}, ["3.6.2"])
    assert debian.names == ubuntu.names == lock_family(matrix).names
    assert len(debian.requests) == len({request.file_name for request in debian.requests})
    with pytest.raises(InputError, match="'rhel'"):
        lock_family(matrix, "rhel")


def test_what_an_mpi_or_keras_2_leaves_out(images: dict[str, Image]) -> None:
    """The digests of the committed locks are of all else that is asked for."""
    packages, _, mpi = lock_requests(images["tf-1.12-gpu-ubuntu"])
    assert (packages.alone, mpi.alone) == (False, True)
    packages = lock_requests(images["tf-2.21-cpu-debian"])[0]
    assert packages.provided == ("tensorflow",), "the image's own, of another name"
    assert packages.platform == "x86_64-manylinux_2_36", "the wheel needs more than 2.17"


@pytest.mark.parametrize(
    ("lock", "problem"),
    [
        (None, "No such file or directory."),  # without advice: whoever reports problems ends so
        (_lock(""), "pip is missing; the matrix requires pip==21.3.1"),
        (_lock(PIP + _entry("H5PY", "3.1.0")), "has h5py 3.1.0; the matrix allows only h5py<3"),
        (_lock(PIP, replace(REQUEST, python="3.7")), "out of date: the requirements in the matrix"),
    ],
    ids=["missing", "package missing", "constraint", "other request"],
)
def test_a_lock_that_does_not_satisfy_is_a_problem(
    tmp_path: Path, lock: str | None, problem: str
) -> None:
    if lock is not None:
        (tmp_path / "x.txt").write_text(lock)
    (found,) = check_lock(REQUEST, tmp_path)
    assert found.startswith(f"x.txt: {problem}")
    assert "imgbuild lock" not in found  # the list of problems ends with it


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (_lock(f"{FINE}pip==21.3.1\n"), f"6: {REFUSED}"),
        (_lock(f"{FINE}pip==21.3.1 \\\n    --hash=sha256:abc\n"), f"6: {REFUSED}"),
        (_lock(f"{FINE}pip==21.3.1 \\\n    --hash=md5:{SHA}\n"), f"6: {REFUSED}"),
        (_lock(f"{FINE}pip>=21 \\\n    --hash=sha256:{SHA}\n"), f"6: {REFUSED}"),
        (_lock(f"{FINE}--index-url https://x.org\n"), f"6: {REFUSED}"),
        (_lock(FINE + _entry("pip", "9" * 5000)), f"6: {REFUSED}"),
        (_lock(FINE + _entry("h5py", "2.10.0") + _entry("H5PY", "3.1.0")), "8: h5py is listed"),
    ],
)
def test_what_is_no_lock_is_refused_with_its_line(text: str, fault: str) -> None:
    with pytest.raises(InputError, match=f"x.txt:{fault}"):
        parse_lock(text, "x.txt")
    whole = _lock(f"\n{FINE}\n{PIP}")
    assert parse_lock(whole, "x.txt").versions == {"six": "1.0", "pip": "21.3.1"}


def test_only_a_lock_that_is_missing_is_made_anew(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x: No such file or directory.* `imgbuild lock`"):
        read_lock_text(tmp_path / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(InputError, match=r"x: Is a directory.* git"):
        read_lock_text(tmp_path / "x")


def test_layers_hold_each_package_once_and_equal_ones_are_one_committed_file(
    images: dict[str, Image], project: Project
) -> None:
    files: dict[str, list[str]] = {}
    for image in with_other_architectures(images.values()):
        left = dict(read_lock(project.locks / image.lock_name).entries)
        layers = package_layers(image, project.locks)
        files[image.name] = [layer.file_name for layer in layers]
        for layer in layers:
            assert all(left.pop(package) in layer.text for package in layer.packages)
            assert layer.text.count("==") == len(layer.packages)
    assert files["tf-1.14-cpu-debian"] == files["tf-1.14-cpu-ubuntu"]
    assert files["tf-2.2-cpu-ubuntu"][:-2] == files["tf-2.3-gpu-ubuntu"][:-2]
    committed = {f"layers/{path.name}" for path in (project.locks / "layers").iterdir()}
    assert {file for own in files.values() for file in own} == committed


@pytest.fixture
def fake_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    """Put a shell script in uv's place."""

    def install(script: str) -> None:
        path = write_fake_uv(tmp_path / "uv", script)
        monkeypatch.setattr("uv.find_uv_bin", lambda: str(path))

    return install


def test_resolve_returns_a_lock_that_satisfies(
    tmp_path: Path, fake_uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment that happens to be active decides nothing."""
    monkeypatch.setenv("VIRTUAL_ENV", "/one")
    (tmp_path / "asked").mkdir()
    copy = f'echo "$@" > {tmp_path}/asked/words; cp overrides.txt {tmp_path}/asked'
    fake_uv(f'[ -z "$VIRTUAL_ENV" ] || exit 1\n{copy}\n{WRITE_PIP}')

    def asked(name: str) -> str:
        return (tmp_path / "asked" / name).read_text()

    text = resolve_lock(REQUEST, tmp_path, *READERS, upgrade=False)
    assert not list(tmp_path.glob("*.txt"))
    assert "--override overrides.txt " in asked("words")
    assert ("--no-deps" in asked("words"), asked("overrides.txt")) == (False, "")
    alone = replace(REQUEST, alone=True, provided=("tensorflow",))
    resolve_lock(alone, tmp_path, *READERS, upgrade=False)
    assert "--no-deps" in asked("words")
    assert asked("overrides.txt") == "tensorflow; sys_platform == 'never'\n"
    (tmp_path / "x.txt").write_text(text)
    assert resolve_lock(REQUEST, tmp_path, *READERS, upgrade=False) == text
    assert check_lock(REQUEST, tmp_path) == []


def test_resolve_records_who_requires_a_package(tmp_path: Path, fake_uv: FakeUv) -> None:
    """A requirement of another system counts nothing, and Horovod is in no lock."""
    names = ("requests", "tensorboard", "idna", "psutil")
    entries = "".join(_entry(name, "1.0") for name in names)
    fake_uv(f"cat > lock.txt <<'EOT'\n{entries}EOT")
    requirements = {
        "requests": ("idna<4,>=2.5", "idna!=3.1", "psutil; sys_platform == 'win32'"),
        "tensorboard": ("requests[socks]>=2 ; python_version < '3.7'", "idna; extra == 'dev'"),
    }
    request = replace(REQUEST, requirements=(), horovod=("psutil",))
    text = resolve_lock(request, tmp_path, no_metadata, lambda *_: requirements, upgrade=False)
    lock = parse_lock(text, "x.txt")
    assert lock.dependents == {
        "requests": {"tensorboard": ">=2"},
        "idna": {"requests": "!=3.1,<4,>=2.5"},
        "psutil": {"horovod": ""},
    }
    assert lock.entries == parse_lock(_lock(entries), "x.txt").entries


def test_only_what_is_not_current_is_resolved(tmp_path: Path, fake_uv: FakeUv) -> None:
    fake_uv(WRITE_PIP)
    (folder := tmp_path / "locks").mkdir()
    (folder / "x.txt").write_text(_lock(PIP))
    (folder / "stale.txt").write_text(_lock(_entry("pip", "20.0")))
    (folder / "notes.md").touch()
    names = ("x.txt", "stale.txt", "new.txt")
    requests = tuple(replace(REQUEST, file_name=name) for name in names)
    family, log = LockFamily(requests, {}, frozenset(names)), list[str]()
    changed, unread = write_locks(family, folder, Sites(), log.append, *READERS)
    assert {*log} == {"resolving stale.txt", "resolving new.txt"}
    assert {path.name for path in changed} == {"stale.txt", "new.txt"}
    assert (unread, check_family(family, folder)) == ([], [])


def test_a_resolution_that_fails_or_has_no_end(
    tmp_path: Path, fake_uv: FakeUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of an index which cannot be reached is in cli/test_cli.py."""
    fake_uv("echo 'because h5py<3 and h5py>=3 conflict' >&2; exit 1")
    with pytest.raises(CheckFailedError, match=r"x\.txt.*conflict"):
        resolve_lock(REQUEST, tmp_path, *READERS, upgrade=False)
    monkeypatch.setattr("imgbuild.locks.resolver.TIMEOUT_SECONDS", 0.2)
    fake_uv("exec tail -f /dev/null")
    with pytest.raises(MachineError, match=r"0\.2 s"):
        resolve_lock(REQUEST, tmp_path, *READERS, upgrade=False)
