"""A Horovod job over several nodes: started, its results read, and one of its nodes killed."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab import docker
from mpi import launch

if TYPE_CHECKING:
    from container import Container, Ran
    from lab import Lab
    from ssh import Nodes

RESULTS = "/tmp/imgbuild-nodes"  # noqa: S108  a folder of the containers, which are the suite's own
SECONDS = 120
#: For what a lost node leaves behind to end by itself, once the job has ended.
SECONDS_TO_CLEAR = 10

_RUN = '"$@"; code=$?; touch "{folder}/ended"; exit "$code"'
_WAIT = "until [ -e {folder}/reducing ] || [ -e {folder}/ended ]; do sleep 0.1; done"


@dataclass(frozen=True)
class Start:
    """One way to start a job: whose nodes, how many, which launcher, and whether one is killed."""

    user: str
    launcher: str
    size: int
    kills: bool

    def __str__(self) -> str:
        """Return the name in the tests' names, such as `root-mpirun-2-killed`."""
        return f"{self.user}-{self.launcher}-{self.size}" + ("-killed" if self.kills else "")


@dataclass(frozen=True)
class Job:
    """A job that has ended, and what each node had: its results, and what it left running.

    `took` is the time from the death of the last node to the end of the job, in seconds.
    """

    names: list[str]
    ran: Ran
    results: dict[str, Ran] = field(default_factory=dict)
    left: dict[str, Ran] = field(default_factory=dict)
    took: float | None = None

    def ranks(self) -> list[dict[str, Any]]:
        """Return the results of all ranks in order; fails the test where one is missing.

        Each node is asked for what was written on it, so ranks that all ran on one fail it too.
        """
        __tracebackhide__ = True
        if self.took is None:
            _ = self.ran.output  # the job had to end well
        found = {name: self._written(name) for name in self.names}
        expected = {name: (rank, len(self.names)) for rank, name in enumerate(self.names)}
        assert {n: (r.get("rank"), r.get("size")) for n, r in found.items()} == expected, (
            f"(rank, size) on each node; expected {expected}"
        )
        return list(found.values())

    def _written(self, name: str) -> dict[str, Any]:
        __tracebackhide__ = True
        lines = self.results[name].output.splitlines()
        assert len(lines) == 1, f"{len(lines)} ranks wrote a result on node {name}, where one ran"
        result: dict[str, Any] = json.loads(lines[0])
        return result


def run_job(nodes: Nodes, start: Start, flavour: str, lab: Lab) -> Job:
    """Run a job to its end, or kill its last node once the ranks reduce; one rank is on each node.

    A job that ends before it was to end has no `took`.
    """
    names = nodes.names[: start.size]
    folder = f"{RESULTS}/{start}"
    processes = {name: _processes(nodes.containers[name]) for name in names if start.kills}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_run, nodes.first, launch(flavour, start.launcher, names), folder, start)
        if start.kills:
            nodes.first.run("sh", "-c", _WAIT.format(folder=folder), seconds=SECONDS)
            return _killed(nodes, names, folder, running, lab, processes)
        return Job(names, running.result(), _results(nodes, names, folder))


def _run(first: Container, launcher: tuple[str, ...], folder: str, start: Start) -> Ran:
    program = ("python", first.path_of("nodes_rank.py"), folder, str(start.size))
    words = (*launcher, *program, "stay" if start.kills else "leave")
    first.run("mkdir", "-p", folder, seconds=10)
    return first.run("sh", "-c", _RUN.format(folder=folder), "sh", *words, seconds=SECONDS)


def _killed(
    nodes: Nodes,
    names: list[str],
    folder: str,
    running: Future[Ran],
    lab: Lab,
    processes: dict[str, Ran],
) -> Job:
    """Read the results, kill the last node, and wait for the end of the job."""
    results = _results(nodes, names, folder)
    if running.done():
        return Job(names, running.result(), results)
    before = time.monotonic()
    docker("kill", lab.id_of(names[-1]))
    ran = running.result()
    took = time.monotonic() - before
    left = {
        name: _processes(nodes.containers[name], known=processes[name]) for name in names[:-1]
    }
    return Job(names, ran, results, left, took)


def _results(nodes: Nodes, names: list[str], folder: str) -> dict[str, Ran]:
    """Return what the ranks wrote on each node."""
    words = ("sh", "-c", f"cat {folder}/rank-*.json")
    return {name: nodes.containers[name].run(*words, seconds=10) for name in names}


def _processes(container: Container, known: Ran | None = None) -> Ran:
    """List the processes of a node by id: all, or those that outlive a job beside the known ones."""
    if known is None:
        return container.program("nodes_processes.py", "0", seconds=10)
    wait = str(SECONDS_TO_CLEAR)
    return container.program("nodes_processes.py", wait, *known.json, seconds=SECONDS_TO_CLEAR + 10)
