"""What the suites `nodes` and `running` judge by, without a container."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import stop_times
from container import Ran
from mpi import says_lost
from nodes_job import Job

from support.project_copy import PROGRAMS

# As Open MPI 4.1.4 and Intel MPI said it, the latter's 2021.8 through the images' mpiexec-ssh.
OPEN_MPI = """\
  HNP daemon   : [[55642,0],0] on node a
  Remote daemon: [[55642,0],2] on node worker-1
"""
OPEN_MPI_RANK = """\
  Local host: a
  Peer host:  b
"""
INTEL_MPI = "mpiexec-ssh: lost the connection to node worker-1: ending the job\n"
INTEL_MPI_2018 = "[mpiexec@a] control_cb: connection to proxy 2 at host worker-1 failed\n"


@pytest.mark.parametrize(
    ("flavour", "text", "lost", "others"),
    [
        ("openmpi", OPEN_MPI, "worker-1", ("a", "worker")),  # a goes on
        ("openmpi", OPEN_MPI_RANK, "b", ("a",)),
        ("openmpi", "Connection to b closed by remote host.", "b", ()),
        ("intelmpi", INTEL_MPI, "worker-1", ("worker-0",)),
        ("intelmpi", INTEL_MPI_2018, "worker-1", ("worker-0", "a")),
    ],
)
def test_the_lost_node_must_be_named(
    flavour: str, text: str, lost: str, others: tuple[str, ...]
) -> None:
    assert says_lost(flavour, lost, text)
    assert not any(says_lost(flavour, other, text) for other in others)
    assert not says_lost(flavour, lost, "KILLED BY SIGNAL: 15 (Terminated)")


def _ran(output: object = "", code: int = 0) -> Ran:
    text = output if isinstance(output, str) else json.dumps(output)
    return Ran("mpirun", 9, code, text, "words")


GOOD = {name: _ran({"rank": rank, "size": 2}) for rank, name in enumerate("ab")}
JOB = Job(names=["a", "b"], ran=_ran(), results=GOOD)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ran": _ran(code=1)}, "mpirun: exit code 1"),
        ({"results": {one: _ran({"rank": 0, "size": 1}) for one in "ab"}}, "(rank, size)"),
        ({"results": {**GOOD, "b": _ran("")}}, "0 ranks wrote"),
        ({"results": {**GOOD, "a": _ran('{"rank": 0}\n{"rank": 1}')}}, "2 ranks wrote"),
        ({"results": {**GOOD, "b": _ran(code=1)}}, "exit code 1"),
    ],
)
def test_a_rank_that_is_missing_or_misplaced_is_told(change: dict[str, Any], fault: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)) as told:
        replace(JOB, **change).ranks()
    assert fault in str(told.value)
    assert replace(JOB, ran=_ran(code=205), took=2.0).ranks(), "it lost a node"


def test_what_outlives_a_job_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program runs as process 40 on a made-up /proc, and knows the processes 1 and 7."""
    processes = {
        1: "0 S dumb-init",
        7: "1 S sshd",
        8: "7 S orted",  # started by sshd
        9: "8 R python train.py",
        11: "1 Z python",  # nobody's, and ended
        30: "0 S /bin/sh",  # an open shell of the suites, with what carries its streams
        31: "30 S cat",
        40: "30 R python nodes_processes.py",
    }
    for number, text in processes.items():
        parent, state, words = text.split(" ", 2)
        (folder := tmp_path / str(number)).mkdir()
        (folder / "stat").write_text(f"{number} (a) b) {state} {parent} 1")
        (folder / "cmdline").write_text(words.replace(" ", "\0"))
        (folder / "comm").write_text(words)
    source = (PROGRAMS / "nodes_processes.py").read_text(encoding="utf-8")
    said: list[str] = []
    monkeypatch.setattr(sys, "argv", ["nodes_processes.py", "0", "1", "7"])
    monkeypatch.setattr(os, "getpid", lambda: 40)
    exec(source.replace("/proc", str(tmp_path)), {"print": said.append})  # noqa: S102
    left = {"8": "orted (S)", "9": "python train.py (R)", "11": "python (Z)"}
    assert json.loads(said[-1]) == left


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
