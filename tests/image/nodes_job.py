"""A Horovod job over several nodes: started, its results read, and one of its nodes killed."""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from docker_command import docker
from limits import allowed
from mpi import YIELDING, launch

if TYPE_CHECKING:
    from container import Container, Ran
    from lab import Lab
    from ssh import Nodes

RESULTS = "/tmp/imgbuild-nodes"  # noqa: S108  a folder of the containers, which are the suite's own
SECONDS = 180
#: From the death of a node to the end of the job.
SECONDS_TO_END = 60
#: For what a lost node leaves behind to end by itself, once the job has ended.
SECONDS_TO_CLEAR = 30

# The folder is the name that the shell is given.
_RUN = '"$@"; code=$?; touch "$0/ended"; exit "$code"'
_WAIT = 'until [ -e "$0/reducing" ] || [ -e "$0/ended" ]; do sleep 0.1; done'


@dataclass(frozen=True)
class Start:
    """One way to start a job: whose nodes, how many, which launcher; it may train, and lose one."""

    user: str
    launcher: str
    size: int
    trains: bool
    kills: bool

    def __str__(self) -> str:
        """Return the name in the tests' names, such as `root-mpirun-2-killed`."""
        return f"{self.user}-{self.launcher}-{self.size}" + ("-killed" if self.kills else "")


@dataclass(frozen=True)
class Job:
    """A job that has ended, and what each node had: its results, and what it left running.

    `took` is the time from the death of the last node to the end of the job, in seconds; infinite
    where that had to be brought about by killing the first node, too.
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


@dataclass(frozen=True)
class _Attempt:
    """A start of a job on these nodes, by name."""

    start: Start
    nodes: dict[str, Container]
    launcher: tuple[str, ...]

    @property
    def first(self) -> Container:
        return next(iter(self.nodes.values()))

    @property
    def folder(self) -> str:
        return f"{RESULTS}/{self.start}"

    def run(self) -> Ran:
        """Run the job to its end."""
        then = "stay" if self.start.kills else "leave"
        name = "nodes_rank.py" if self.start.trains else "nodes_mpi_rank.py"
        rank = ("python", self.first.path_of(name), self.folder, str(len(self.nodes)))
        self.first.run("mkdir", "-p", self.folder, seconds=10)
        words = (*self.launcher, *rank, then)
        return self.first.run("sh", "-c", _RUN, self.folder, *words, seconds=SECONDS)

    def wait(self) -> None:
        """Wait until the ranks reduce, or the job has ended before."""
        self.first.run("sh", "-c", _WAIT, self.folder, seconds=SECONDS)

    def results(self) -> dict[str, Ran]:
        """Return what the ranks wrote on each node."""
        words = ("sh", "-c", f"cat {self.folder}/rank-*.json")
        return {name: node.run(*words, seconds=10) for name, node in self.nodes.items()}

    def processes(self) -> dict[str, Ran]:
        """Return the processes on each node, by their ids."""
        return {
            name: node.program("nodes_processes.py", "0", seconds=10)
            for name, node in self.nodes.items()
        }

    def left(self, known: dict[str, Ran]) -> dict[str, Ran]:
        """Return what outlives the job on all nodes but the last, beside the `known` processes."""
        seconds = SECONDS_TO_CLEAR + 10  # they sleep, so an emulated processor needs no more
        return {
            name: self.nodes[name].program(
                "nodes_processes.py", str(SECONDS_TO_CLEAR), *processes.json, seconds=seconds
            )
            for name, processes in list(known.items())[:-1]
        }


def run_job(nodes: Nodes, start: Start, flavour: str, lab: Lab) -> Job:
    """Run a job to its end, or kill its last node once the ranks reduce; one rank is on each node.

    A job that ends before it was to end has no `took`.
    """
    places = dict(list(nodes.containers.items())[: start.size])
    attempt = _Attempt(
        start, places, (*YIELDING[flavour], *launch(flavour, start.launcher, list(places)))
    )
    if start.kills:
        return _killed(attempt, lab)
    return Job(list(places), attempt.run(), attempt.results())


def _killed(attempt: _Attempt, lab: Lab) -> Job:
    names = list(attempt.nodes)
    known = attempt.processes()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(attempt.run)
        attempt.wait()
        results = attempt.results()
        if running.done():
            return Job(names, running.result(), results)
        before = time.monotonic()
        docker("kill", lab.id_of(names[-1]))
        try:
            ran = running.result(allowed(SECONDS_TO_END))
        except TimeoutError:
            docker("kill", lab.id_of(names[0]))
            return Job(names, running.result(), results, took=math.inf)
        took = time.monotonic() - before
    return Job(names, ran, results, attempt.left(known), took)
