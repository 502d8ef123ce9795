"""What the suites `nodes` and `parameter_servers` judge by, without a container."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import nodes_numbers
import pytest
import test_horovod
from container import Ran
from mpi import launch, says_lost
from nodes_job import Job
from test_nodes import starts

PROGRAMS = Path(__file__).resolve().parents[2] / "image" / "programs"

# As Open MPI 4.1.4 and Intel MPI said it, the latter's 2021.8 through the images' mpiexec-ssh.
OPEN_MPI = """ORTE has lost communication with a remote daemon.

  HNP daemon   : [[55642,0],0] on node a
  Remote daemon: [[55642,0],2] on node worker-1

This is usually due to either a failure of the TCP network"""
OPEN_MPI_RANK = """An MPI communication peer process has unexpectedly disconnected.
  Local host: a
  Local PID:  21
  Peer host:  b
"""
INTEL_MPI = "mpiexec-ssh: lost the connection to node worker-1: ending the job\n"
INTEL_MPI_2018 = """\
[mpiexec@a] control_cb (../pmiserv_cb.c:863): connection to proxy 2 at host worker-1 failed
[mpiexec@a] main (../../ui/mpich/mpiexec.c:1149): process manager error waiting for completion
"""


def test_every_flavour_is_told_the_nodes_in_its_words() -> None:
    nodes = ["a", "b", "c"]
    assert launch("openmpi", "mpirun", nodes)[:5] == ("mpirun", "-n", "3", "-H", "a:1,b:1,c:1")
    assert launch("intelmpi", "mpirun", nodes)[-3:] == ("1", "-hosts", "a,b,c")
    assert launch("openmpi", "horovodrun", nodes)[-5:] == (
        *("horovodrun", "-np", "3"),
        *("-H", "a:1,b:1,c:1"),
    )


@pytest.mark.parametrize(
    ("flavour", "node", "text", "named"),
    [
        ("openmpi", "worker-1", OPEN_MPI, True),
        ("openmpi", "a", OPEN_MPI, False),  # the node that goes on
        ("openmpi", "worker", OPEN_MPI, False),
        ("openmpi", "b", OPEN_MPI_RANK, True),
        ("openmpi", "a", OPEN_MPI_RANK, False),
        ("openmpi", "b", "Connection to b closed by remote host.", True),
        ("intelmpi", "worker-1", INTEL_MPI, True),
        ("intelmpi", "worker-1", INTEL_MPI_2018, True),
        ("intelmpi", "worker-0", INTEL_MPI_2018, False),
        ("intelmpi", "worker-1", "KILLED BY SIGNAL: 15 (Terminated)", False),
    ],
)
def test_the_lost_node_must_be_named(flavour: str, node: str, text: str, *, named: bool) -> None:
    assert says_lost(flavour, node, text) is named


def test_horovodrun_is_only_asked_where_it_is() -> None:
    assert [str(start) for start in starts(horovodrun=True)] == [
        "root-horovodrun-2",
        "mpiuser-mpirun-3-killed",
    ]
    assert {start.launcher for start in starts(horovodrun=False)} == {"mpirun"}
    assert all(start.size <= len(nodes_numbers.FEATURES) for start in starts(horovodrun=True))


def test_two_nodes_find_what_two_ranks_of_one_find() -> None:
    found = nodes_numbers.collectives(2)
    assert found["mean float32"]["values"] == test_horovod.MEAN
    for dtype in nodes_numbers.DTYPES:
        assert found[f"sum {dtype}"] == {"dtype": dtype, "values": test_horovod.SUM[dtype]}
        assert found[f"broadcast {dtype}"]["values"] == test_horovod.OF_RANK_1[dtype]
        assert found[f"allgather {dtype}"]["values"] == test_horovod.JOINED


def test_training_depends_on_every_rank_and_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    three = nodes_numbers.trained(3)
    assert three == pytest.approx([0.2597767, -0.1907483], rel=1e-5)  # of TensorFlow, three ranks
    assert nodes_numbers.trained(2) != pytest.approx(three, rel=1e-2)
    monkeypatch.setattr(nodes_numbers, "STEPS", nodes_numbers.STEPS - 1)
    assert nodes_numbers.trained(3) != pytest.approx(three, rel=1e-3)


def _ran(output: object = "", code: int = 0) -> Ran:
    text = output if isinstance(output, str) else json.dumps(output)
    return Ran("mpirun", 9, code, text, "words")


GOOD = Job(
    ["a", "b"],
    _ran(),
    {name: _ran({"rank": rank, "size": 2}) for rank, name in enumerate(["a", "b"])},
)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ran": _ran(code=1)}, "exit code 1: mpirun"),
        ({"results": {"a": _ran({"rank": 0, "size": 1}), "b": _ran({"rank": 0, "size": 1})}}, "1"),
        ({"results": {"a": _ran({"rank": 0, "size": 2}), "b": _ran("")}}, "0 ranks wrote"),
        ({"results": {"a": _ran('{"rank": 0}\n{"rank": 1}'), "b": _ran("{}")}}, "2 ranks wrote"),
        ({"results": {"a": _ran("{}"), "b": _ran(code=1)}}, r"\(rank, size\)|exit code 1"),
    ],
)
def test_a_rank_that_is_missing_or_misplaced_is_told(change: dict[str, Any], fault: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception), match=fault):
        replace(GOOD, **change).ranks()


def test_a_job_that_lost_a_node_need_not_end_well() -> None:
    assert replace(GOOD, ran=_ran(code=205), took=2.0).ranks()


def _processes_left(
    monkeypatch: pytest.MonkeyPatch, proc: Path, *known: str, **processes: str
) -> Any:
    """Run the program as process 40 on a made-up /proc; `p7="1 S sleep 9"` is a child of 1."""
    for name, text in processes.items():
        parent, state, words = text.split(" ", 2)
        (proc / name[1:]).mkdir()
        (proc / name[1:] / "stat").write_text(f"{name[1:]} (a) b) {state} {parent} 1")
        (proc / name[1:] / "cmdline").write_text(words.replace(" ", "\0"))
        (proc / name[1:] / "comm").write_text(words)
    source = (PROGRAMS / "nodes_processes.py").read_text(encoding="utf-8")
    said: list[str] = []
    monkeypatch.setattr(sys, "argv", ["nodes_processes.py", "0", *known])
    monkeypatch.setattr(os, "getpid", lambda: 40)
    exec(source.replace("/proc", str(proc)), {"print": said.append})  # noqa: S102
    return json.loads(said[-1])


def test_what_outlives_a_job_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = _processes_left(
        *(monkeypatch, tmp_path, "1", "7"),
        p1="0 S dumb-init",
        p7="1 S sshd",
        p8="7 S orted",  # started by sshd
        p9="8 R python train.py",
        p11="1 Z python",  # nobody's, and ended
        p30="0 S /bin/sh",  # an open shell of the suites, with what carries its streams
        p31="30 S cat",
        p40="30 R python nodes_processes.py",
    )
    assert found == {"8": "orted (S)", "9": "python train.py (R)", "11": "python (Z)"}
