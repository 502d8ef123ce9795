"""How the suite `running` judges stops, complaints and environments, and what its programs see."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import stop_times
from run_modes import (
    NAMELESS,
    complaints,
    differing,
)
from stop_times import ALONE, KILLED, Stop, stopped

PROGRAMS = Path(__file__).resolve().parents[2] / "image" / "programs"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return how to import a program."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    return __import__


def test_all_that_runs_is_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.Barrier(len(ALONE) + 1, timeout=30)

    def stop(what: str) -> Stop:
        others.wait()
        return Stop(0.2, len(what))

    monkeypatch.setattr(stop_times, "_start", lambda _lab, what, _flavour: what)
    monkeypatch.setattr(stop_times, "_stop", stop)
    lab: Any = None
    ends = {what: end.exit_code for what, end in stopped(lab, "openmpi").items()}
    assert ends == {what: len(what) for what in (*ALONE, "mpirun")}


def test_a_lost_signal_is_a_fault_and_a_slow_stop_is_none() -> None:
    assert Stop(29.0, 143).fault is None
    assert Stop(0.1, KILLED).fault == "killed after 30 s, the signal did not reach it"


@pytest.mark.parametrize("then", ["", "exec sleep 60"], ids=["ends", "waits"])
def test_what_does_not_start_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, then: str
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho ready; echo mpirun: no such file; {then}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(stop_times, "SECONDS_TO_START", 0.5)
    assert stop_times._ready("container", 1) == "container"
    with pytest.raises(pytest.fail.Exception, match="it says:\nready\nmpirun: no such file"):
        stop_times._ready("container", 2)


def test_only_known_words_of_a_launcher_are_passed_over() -> None:
    warning = "[a:1] Read -1, expected 52428800, errno = 1"
    assert complaints(f"{NAMELESS}\n\n", named=False) == []
    assert complaints(f"{NAMELESS}\n{warning}\n", named=False) == [warning]
    assert complaints(f"{NAMELESS}\n", named=True) == [NAMELESS]


def test_environments_are_compared_but_for_what_shells_set() -> None:
    ours = {"PATH": "/a", "LANG": "C.UTF-8", "PWD": "/"}
    assert differing(ours, {**ours, "PWD": "/root", "SHLVL": "1"}) == []
    assert differing(ours, {"PATH": "/b", "LANG": "C.UTF-8"}) == [("PATH=/a", "PATH=/b")]
    assert differing(ours, {**ours, "MPI": "on"}) == [("MPI=None", "MPI=on")]


def test_a_process_finds_the_environment_of_another(program: Any) -> None:
    module = program("surroundings")
    name = "a name that nothing else has"
    command = [name, "-c", "import time; time.sleep(60)"]
    environment = {**os.environ, "WHOSE": "another's"}
    with subprocess.Popen(command, executable=sys.executable, env=environment) as other:
        try:
            while Path(f"/proc/{other.pid}/cmdline").read_bytes().split(b"\0")[0] != name.encode():
                pass
            assert module.started(name)["WHOSE"] == "another's"
        finally:
            other.kill()
    assert module.started(name) == {}


def test_text_goes_through_a_file(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = program("surroundings")
    assert module.written()["text"] == module.NON_ASCII

    def ascii_only() -> None:
        module.NON_ASCII.encode("ascii")

    monkeypatch.setattr(module, "through_a_file", ascii_only)
    assert "'ascii' codec" in module.written()["fault"]


def test_orphans_and_zombies_are_told_apart(program: Any) -> None:
    module = program("orphans")
    with subprocess.Popen(["true"]) as child:
        while module.state(child.pid) != "Z":
            pass
        assert module.left([child.pid]) == [child.pid]
    assert module.state(child.pid) is None
