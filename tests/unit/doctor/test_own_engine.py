"""imgbuild's own engine is started and stopped, and nobody else's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgbuild.doctor import engine_process, processes
from imgbuild.doctor.engine_process import refuse_beside_others, start, stop
from imgbuild.doctor.own_engine import OPTIONS_VARIABLE, OwnEngine
from imgbuild.errors import MachineError


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnEngine]:
    engine = OwnEngine(tmp_path / "state", tmp_path / "run")
    engine.run.mkdir()
    yield engine
    stop(engine, patience=1)


@pytest.fixture
def dockerd(tmp_path: Path) -> str:
    """Return a program called dockerd that writes its pidfile, as the real one does."""
    path = tmp_path / "dockerd"
    body = (
        f"#!{sys.executable} -S\n"
        "import os, sys, time\n"
        "names = dict(w[2:].split('=', 1) for w in sys.argv[1:])\n"
        "open(names['pidfile'], 'w').write(str(os.getpid()))\n"
        "print('I am up', flush=True)\n"
        "time.sleep(60)\n"
    )
    path.write_text(body)
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other engine runs, whatever this machine has; a script's first word is not its name."""
    monkeypatch.setattr(engine_process, "other_engines", lambda _own: [])
    monkeypatch.delenv(OPTIONS_VARIABLE, raising=False)
    real = processes.command_line

    def without_interpreter(pid: int) -> tuple[str, ...]:
        words = real(pid)
        return words[2:] if words[1:2] == ("-S",) else words

    monkeypatch.setattr(processes, "command_line", without_interpreter)


def has_pid(own: OwnEngine) -> bool:
    return own.pid() is not None


def test_start_and_stop(own: OwnEngine, dockerd: str) -> None:
    start(own, dockerd, lambda _host: has_pid(own), {})
    pid = own.pid()
    assert pid is not None
    assert own.log.read_text() == "I am up\n"
    assert own.config.read_text() == "{}\n"
    start(own, dockerd, lambda _host: True, {})
    assert own.pid() == pid, "a second start finds the first"
    assert stop(own, patience=5)
    assert own.pid() is None
    assert not own.pidfile.exists()
    assert not stop(own), "there is nothing left to stop"


def test_it_is_apart_from_any_other(own: OwnEngine) -> None:
    command = own.command("dockerd", {OPTIONS_VARIABLE: "--bip=10.1.0.1/24 --debug"})
    assert f"--data-root={own.state}/docker" in command
    assert f"--host=unix://{own.run}/docker.sock" in command
    assert f"--config-file={own.state}/daemon.json" in command
    assert command[-2:] == ["--bip=10.1.0.1/24", "--debug"]
    assert not any(
        word.startswith(("--bridge", "--iptables")) for word in own.command("dockerd", {})
    )


def test_stop_never_ends_a_foreign_process(own: OwnEngine) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        own.pidfile.write_text(str(stranger.pid))
        assert not stop(own, patience=1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_stop_never_ends_another_dockerd(own: OwnEngine, dockerd: str, tmp_path: Path) -> None:
    other = subprocess.Popen(
        [dockerd, f"--data-root={tmp_path}/theirs", f"--pidfile={own.pidfile}"],
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        assert own.pidfile.read_text() == str(other.pid)
        assert not stop(own, patience=1)
        assert other.poll() is None
    finally:
        other.kill()
        other.communicate()


def test_a_stale_pidfile_does_not_prevent_a_start(own: OwnEngine, dockerd: str) -> None:
    own.pidfile.write_text(str(os.getpid()))
    start(own, dockerd, lambda _host: has_pid(own), {})
    assert own.pid() not in {None, os.getpid()}


def test_an_engine_that_does_not_come_up(own: OwnEngine, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho failed to mount overlay\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(MachineError, match=r"ended.*failed to mount overlay"):
        start(own, str(broken), lambda _host: False, {})


def test_no_program_to_start(own: OwnEngine) -> None:
    with pytest.raises(MachineError, match="cannot be started"):
        start(own, "/nowhere/dockerd", lambda _host: False, {})


def test_not_beside_another_engine(own: OwnEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_process, "other_engines", lambda _own: [os.getpid()])
    with pytest.raises(MachineError, match="Another Docker engine runs"):
        refuse_beside_others(own, {})
    refuse_beside_others(own, {OPTIONS_VARIABLE: "--bridge=br0"})
