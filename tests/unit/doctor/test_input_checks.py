"""The rows about inputs, with programs that a test put on PATH."""

import base64
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.doctor import input_checks
from imgbuild.doctor.checks import check_disk, check_programs
from imgbuild.doctor.input_checks import (
    CaState,
    InterpreterState,
    check_bootstrap,
    check_ca,
    check_index,
    check_interpreter,
    check_registry,
    read_ca_state,
    read_interpreter,
)
from imgbuild.doctor.show import Status, install_command
from imgbuild.errors import InputError
from imgbuild.inputs.base import KEYRINGS
from imgbuild.matrix.model import Matrix, OperatingSystem
from imgbuild.settings import Interpreter, PrefixInterpreter, Sites, SourceInterpreter

DIGEST = "example/base@sha256:" + "0" * 64
URL = "https://example.org/Python-3.6.15.tar.xz"
LOCAL, MINE = Path("/opt/local"), Path("/opt/mine")

Program = Callable[..., Path]


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return how to put a shell script on a PATH that has no other program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("imgbuild.process._SYSTEM_FOLDERS", str(folder))

    def make(name: str, script: str = "exit 0") -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def bookworm(matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OperatingSystem:
    (tmp_path / "keyring.gpg").touch()
    ring = (tmp_path / "keyring.gpg", "debian-archive-keyring")
    monkeypatch.setitem(KEYRINGS, "debian", ring)
    return matrix.operating_systems["debian-12"]


@pytest.mark.parametrize(
    ("free", "status"), [(50, Status.FINE), (9, Status.WARNING), (2, Status.MISSING)]
)
def test_disk(monkeypatch: pytest.MonkeyPatch, free: int, status: Status) -> None:
    usage = shutil._ntuple_diskusage(100 * 10**9, 0, free * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert check_disk("disk", Path("/data"), "prune").status is status


def test_programs(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    client, git = check_programs()
    assert install_command("git") == "install git with this system's package manager"
    program("apt-get")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert install_command("git") == "sudo apt-get install -y git"
    assert "--no-test" in client.detail
    assert git.status is client.status is Status.WARNING
    program("git")
    program("docker")
    assert [found.status for found in check_programs()] == [Status.FINE] * 2


def test_bootstrap(bookworm: OperatingSystem, program: Program, tmp_path: Path) -> None:
    program("mmdebstrap", f'echo "$@" > {tmp_path}/words')
    assert check_bootstrap("debian-12", bookworm).status is Status.FINE
    assert "bookworm" in (tmp_path / "words").read_text()
    program("mmdebstrap", "echo 'E: Could not connect' >&2; echo 'E: Some failed' >&2; exit 25")
    found = check_bootstrap("debian-12", bookworm)
    assert found.status is Status.MISSING
    assert found.detail.endswith("cannot be used: Could not connect")
    assert "base: {debian-12: {from: registry" in (found.fix or "")


def test_bootstrap_without_its_tools(
    bookworm: OperatingSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (tmp_path / "keyring.gpg").unlink()
    found = check_bootstrap("debian-12", bookworm)
    assert found.status is Status.MISSING
    assert "debian-archive-keyring mmdebstrap uidmap" in (found.fix or "")


def test_registry(program: Program) -> None:
    good = program("buildx", 'test "$DOCKER_HOST" = unix:///s')
    assert check_registry("debian-12", DIGEST, good, "unix:///s").status is Status.FINE
    silent = program("silent", "echo 'no such host' >&2; exit 1")
    assert check_registry("debian-12", DIGEST, silent, None).status is Status.WARNING
    assert check_registry("debian-12", DIGEST, None, None).status is Status.SKIPPED


def test_index(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    good = program("uv", 'test "$SSL_CERT_FILE" = /ca.pem')
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(good))
    assert check_index("/ca.pem").status is Status.FINE
    silent = program("uv2", "echo 'error: dns error' >&2; exit 2")
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(silent))
    found = check_index(None)
    assert found.status is Status.MISSING
    assert "dns error" in found.detail


def certificate(content: bytes) -> str:
    body = base64.b64encode(content).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a bundle with a public and a private CA."""
    folder, path = tmp_path / "public", tmp_path / "bundle.pem"
    folder.mkdir()
    (folder / "one.crt").write_text(certificate(b"public"))
    monkeypatch.setattr(input_checks, "_PUBLIC_CAS", folder)
    path.write_text(certificate(b"public") + certificate(b"private"))
    return path


def test_a_private_ca_is_one_that_no_public_list_has(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = read_ca_state({"PIP_CERT": str(bundle)})
    assert state == CaState(bundle, "PIP_CERT", 1)
    assert check_ca(state, None).status is Status.WARNING
    assert check_ca(state, str(bundle)).status is Status.FINE
    assert state.choose(None) == state.choose("/gone.pem") == str(bundle)
    assert state.choose(__file__) == __file__, "the user's own stays"
    bundle.write_text(certificate(b"public"))
    monkeypatch.setattr(input_checks, "SYSTEM_BUNDLES", (Path("/gone"), bundle))
    state = read_ca_state({})
    assert (check_ca(state, None).status, state.choose(None)) == (Status.FINE, None)
    found = check_ca(read_ca_state({"SSL_CERT_FILE": "/gone.pem"}), None)
    assert (found.status, found.fix) == (Status.MISSING, "unset SSL_CERT_FILE")


def prefix(path: Path) -> PrefixInterpreter:
    return PrefixInterpreter(source="prefix", path=str(path))


@pytest.mark.parametrize(
    ("problem", "prefixes", "current", "chosen"),
    [
        ("", (), None, SourceInterpreter()),
        ("", (LOCAL,), prefix(LOCAL), prefix(LOCAL)),
        ("", (LOCAL,), prefix(MINE), SourceInterpreter()),
        ("no route", (LOCAL,), None, prefix(LOCAL)),
        ("no route", (LOCAL,), SourceInterpreter(), prefix(LOCAL)),
        ("no route", (), None, None),
    ],
)
def test_where_an_interpreter_is_taken_from(
    problem: str,
    prefixes: tuple[Path, ...],
    current: Interpreter | None,
    chosen: Interpreter | None,
) -> None:
    assert InterpreterState("3.6.15", URL, problem, prefixes).choose(current) == chosen


def test_an_interpreter_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(path: Path, _version: str) -> None:
        if path != LOCAL:
            raise InputError(f"{path} cannot import ssl.")

    monkeypatch.setattr(input_checks, "find_prefixes", lambda _version: [LOCAL])
    monkeypatch.setattr(input_checks, "verify_prefix", verify)
    url = "http://127.0.0.1:9/Python-3.6.15.tar.xz"
    state = read_interpreter("3.6.15", url, str(MINE), Sites())
    assert state.prefixes == (LOCAL,)
    assert state.faults == (f"{MINE} cannot import ssl.",)
    assert "refused" in state.problem


def test_an_interpreter_must_be_had_and_recorded() -> None:
    state = InterpreterState("3.6.15", URL, "no route", (LOCAL,))
    assert check_interpreter(state, prefix(LOCAL), recorded=True).status is Status.FINE
    for way in (prefix(LOCAL), SourceInterpreter()):
        found = check_interpreter(state, way, recorded=False)
        assert (found.status, found.fix) == (Status.MISSING, "imgbuild doctor --write")
    neither = check_interpreter(state, None, recorded=True)
    assert neither.status is Status.MISSING
    assert "no route" in neither.detail
    assert "cpython: {3.6.15: {from: prefix" in (neither.fix or "")
