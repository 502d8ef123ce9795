"""The findings on the engine, its disk and programs: once where all is well, once where not."""

import grp
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from imgbuild.build.prepare import needed_bytes
from imgbuild.core.errors import MachineError
from imgbuild.core.settings import EngineSettings
from imgbuild.doctor import checks
from imgbuild.doctor.checks import (
    OTHER_ENGINE,
    OWN_HOST,
    WRITE,
    Finding,
    Status,
    check_engine,
    check_folders,
    check_home,
    check_programs,
    find_engine,
)
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.faults import DOCTOR
from imgbuild.engine.types import EngineVersion
from support.fake_engine import VERSION

pytest_plugins = ("support.doctor_fixtures",)
ROOT = Path(__file__).resolve().parents[3]
HOST = "unix:///s"
#: What asks for a user by number, where none has a name.
NOBODY = dict[int, object]().__getitem__
BUILDX = Buildx(Path("/usr/libexec/docker-buildx"), "0.29.1")

Answers = dict[str | None, EngineVersion | MachineError]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Return what each address answers; the others have no engine."""
    made: Answers = {}
    nothing = MachineError("The engine cannot be used. " + DOCTOR)

    def engine(host: str | None) -> Mock:
        return Mock(version=Mock(side_effect=[made.get(host, nothing)]))

    monkeypatch.setattr(checks, "Engine", engine)
    monkeypatch.setattr(checks, "find_buildx", lambda _settings, _host: BUILDX)
    monkeypatch.setattr(checks, "broken_feature", lambda *_: None)
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    return made


def found(host: str | None = None, *builders: str) -> list[Finding]:
    settings = EngineSettings(host=host, builder=builders or None)
    address, version, engine = find_engine(settings, ROOT)
    return [engine, *check_engine(settings, ROOT, address, version)]


@pytest.mark.usefixtures("answers")
def test_no_engine_names_the_script_that_sets_one_up(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = Mock(side_effect=MachineError("There is no buildx."))
    monkeypatch.setattr(checks, "find_buildx", refuse)
    monkeypatch.setattr(checks, "engine_setup", lambda root: f"{root}/build/setup/engine.sh")
    engine, buildx, features = found()
    assert engine.detail == "The engine cannot be used.", "without the advice to run the doctor"
    assert engine.fix == f"{ROOT}/build/setup/engine.sh"
    assert str(buildx.fix).startswith(engine.fix)
    states = (Status.MISSING, Status.MISSING, Status.SKIPPED)
    assert (engine.status, buildx.status, features.status) == states
    assert str(found(OWN_HOST)[0].fix).endswith("engine.sh")


def test_the_engine_of_the_script_is_recorded_unless_another_is_named_or_answers(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers[OWN_HOST] = VERSION
    engine = found()[0]
    assert (engine.status, engine.fix) == (Status.MISSING, WRITE)
    assert engine.choice == {"engine": EngineSettings(host=OWN_HOST)}
    assert "imgbuild.local.yaml" in str(found("tcp://build:2375")[0].fix)
    monkeypatch.setenv("DOCKER_HOST", "tcp://build:2375")
    assert "DOCKER_HOST" in str(found("tcp://build:2375")[0].fix)
    answers[None] = VERSION
    assert found()[0].choice == {}, "the default engine goes first"


@pytest.mark.parametrize("runs", [True, False])
def test_each_builder_is_tried_unless_it_does_not_answer(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    answers[HOST] = VERSION
    tried: list[str | None] = []

    def probe(buildx: Buildx, _platform: str) -> str | None:
        tried.append(buildx.builder)
        return "no network" if buildx.builder == "b" else None

    monkeypatch.setattr(checks, "broken_feature", probe)
    monkeypatch.setattr(checks, "with_builder", lambda buildx, name: replace(buildx, builder=name))
    monkeypatch.setattr(checks, "is_reachable", lambda *_: runs)
    _, _, first, second, _ = found(HOST, "a", "b")
    assert tried == (["a", "b"] if runs else [])
    assert first.status is (Status.FINE if runs else Status.MISSING)
    assert (second.status, "no network" in second.detail) == (Status.MISSING, runs)


@pytest.mark.parametrize(
    ("machine", "platform", "emulated"),
    [
        ("x86_64", "linux/amd64", False),
        ("x86_64", "linux/arm64", True),
        ("aarch64", "linux/arm64", False),
        ("aarch64", "linux/amd64", True),
    ],
)
def test_each_platform_is_tried_and_what_is_emulated_is_said(
    answers: Answers,
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
    platform: str,
    emulated: bool,
) -> None:
    answers[HOST] = version = replace(VERSION, architecture=machine)
    tried: list[str] = []
    monkeypatch.setattr(checks, "broken_feature", lambda _, platform: tried.append(platform))
    rows = check_engine(EngineSettings(host=HOST), ROOT, HOST, version, (platform,))
    (row,) = (row for row in rows if row.what.startswith("BuildKit"))
    assert tried == [platform]
    assert row.status is Status.FINE
    assert ("emulated" in row.detail) == emulated


def test_the_engine_needs_as_much_disk_as_a_build_requires(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers[HOST] = VERSION
    for free, status in ((needed_bytes() - 1, Status.MISSING), (needed_bytes(), Status.WARNING)):
        usage = shutil._ntuple_diskusage(0, 0, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        disk = found(HOST)[3]
        assert (disk.what, disk.status) == ("disk, engine", status)


def test_an_engine_that_can_do_all_and_one_that_cannot(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers[HOST] = VERSION
    engine, buildx, features, _ = found(HOST)
    assert {engine.status, buildx.status, features.status} == {Status.FINE}
    assert "arm64" not in engine.detail
    monkeypatch.setattr(checks, "broken_feature", lambda *_: "unknown flag: --link")
    answers[HOST] = replace(VERSION, architecture="aarch64")
    other, _, features, _ = found(HOST)
    assert "linux/arm64" in other.detail
    assert (features.status, "unknown flag: --link" in features.detail) == (Status.MISSING, True)


@pytest.mark.parametrize(
    ("group", "members", "fix"),
    [
        (998, [], "sudo usermod -aG docker ann, then log in again"),
        (998, ["ann"], "newgrp docker, or log in again"),
        (0, [], OTHER_ENGINE),
    ],
    ids=["other group", "older login", "root's"],
)
def test_a_socket_of_others(  # noqa: PLR0913, PLR0917 - what a socket and a user are
    answers: Answers,
    program: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    group: int,
    members: list[str],
    fix: str,
) -> None:
    program("sudo")
    socket = program("docker.sock")
    if os.geteuid() == 0:
        os.chown(socket, 0, group)
    here, gone = f"unix://{socket}", "unix:///gone/s"
    answers[here] = answers[gone] = MachineError("no connection: Permission denied")
    entry = grp.struct_group(("docker", "x", group, members))
    monkeypatch.setattr("grp.getgrgid", lambda _: entry)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("pwd.getpwuid", lambda _: pwd.struct_passwd(("ann", *"xxxxxx")))
    engine = found(here)[0]
    assert (engine.status, str(socket) in engine.detail) == (Status.MISSING, True)
    assert str(engine.fix).startswith(fix)
    assert found(gone)[0].fix == OTHER_ENGINE
    monkeypatch.setattr("pwd.getpwuid", NOBODY)
    assert found(here)[0].fix == OTHER_ENGINE


def test_folders_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / name / "below"))
    usage = shutil._ntuple_diskusage(10**11, 0, 10**11)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)  # this machine's may be nearly full
    assert [row.status for row in check_folders()] == [Status.FINE] * 2
    closed = tmp_path / "XDG_STATE_HOME"
    closed.mkdir()
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: path != closed and access(path, mode))
    folders, disk = check_folders()
    assert (folders.status, disk.status) == (Status.MISSING, Status.FINE)
    assert folders.detail == f"this user cannot write to {closed}/below/imgbuild"
    assert str(folders.fix).endswith("or set XDG_STATE_HOME")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing names one, nor a folder in its place."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, "")  # to be set back
        monkeypatch.delenv(name)
    monkeypatch.setattr("pwd.getpwuid", NOBODY)
    (missing,) = check_home()
    assert missing.status is Status.MISSING
    assert not [*check_home()], "said once"
    monkeypatch.setattr("os.access", lambda *_: False)
    folders, _ = check_folders()
    assert "cannot write to /nonexistent/.cache/imgbuild, /nonexistent/" in folders.detail


def test_programs(program: Callable[..., Path], tmp_path: Path) -> None:
    assert [row.status for row in check_programs(tmp_path)] == [Status.WARNING] * 2
    program("git")
    program("docker")
    assert [row.status for row in check_programs(tmp_path)] == [Status.FINE] * 2


def test_another_users_checkout_gives_images_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "a checkout"
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    *_, git = check_programs(root)
    assert git.status is Status.FINE, "without a commit there is none to name"
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own tests use it
    *_, git = check_programs(root)
    assert git.status is Status.WARNING
    assert git.fix == f"git config --global --add safe.directory '{root}'"
