"""Stop containers that run something, and say how long each took and how it ended."""

from __future__ import annotations

import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from docker_command import SECONDS, docker
from image_labels import inspect
from limits import allowed
from mpi import mpirun
from out_of_time import out_of_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lab import Lab

#: The engine kills what has not ended by then. Long, for a busy machine is no fault of the image.
STOP_SECONDS = allowed(30)
#: The exit code of what the engine killed: the signal was lost, whatever the time.
KILLED = 137
SECONDS_TO_START = allowed(30)
#: None of them handles a signal itself: the kernel then ignores SIGTERM for a process 1. Each says
#: when it runs: what an init is told before it has started anything may be lost.
READY = "ready"
ALONE: Mapping[str, Sequence[str]] = {
    "sleep": ("sh", "-c", f"echo {READY}; exec sleep 600"),
    "python": ("python", "-c", f"import time; print('{READY}', flush=True); time.sleep(600)"),
    "shell-loop": ("bash", "-c", f"echo {READY}; while true; do sleep 1; done"),
}
JOB = "mpirun"
#: Waits for the name of the program, which is copied into a running container only.
LATER = (
    "until [ -s /tmp/program ]; do sleep 0.1; done; exec {} python $(cat /tmp/program) wait 2>&1"
)


@dataclass(frozen=True)
class Stop:
    """How one container ended."""

    seconds: float
    exit_code: int

    @property
    def killed(self) -> bool:
        """Return whether the engine had to kill it; that it took long is no fault."""
        return self.exit_code == KILLED


def stopped(lab: Lab, flavour: str | None) -> dict[str, Stop]:
    """Return how the containers ended, by what ran in them; all are stopped at once.

    Without a flavour of MPI there is no job of ranks.
    """
    flavours = {**dict.fromkeys(ALONE), **({JOB: flavour} if flavour else {})}
    started = [_start(lab, *pair) for pair in flavours.items()]
    with ThreadPoolExecutor(len(started)) as pool:
        return dict(zip(flavours, pool.map(_stop, started), strict=True))


def _start(lab: Lab, what: str, flavour: str | None) -> str:
    """Return the container's id once all that is to be stopped runs; ranks have a flavour."""
    name = f"stop-{what}"
    if flavour is None:
        return _ready(lab.bare(name, command=ALONE[what]), 1)
    waiting = LATER.format(" ".join(mpirun(flavour, 2)))
    container = lab.start(name, command=("sh", "-c", waiting))
    ranks = container.path_of("mpi_rank.py")
    container.run("sh", "-c", f"echo {ranks} > /tmp/program", seconds=10)
    return _ready(lab.id_of(name), 2)


def _ready(container: str, processes: int) -> str:
    """Return the container once so many say that they run; fails where it ends before, or waits."""
    said: list[str] = []
    follow = ("docker", "logs", "--follow", container)
    with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as logs:
        began = time.monotonic()
        limit = threading.Timer(SECONDS_TO_START, logs.kill)
        limit.start()
        while said.count(READY) < processes and logs.stdout and (line := logs.stdout.readline()):
            said.append(line.decode(errors="replace").rstrip())
        limit.cancel()
        logs.kill()
    if said.count(READY) < processes:
        if time.monotonic() - began >= SECONDS_TO_START:
            out_of_time("\n".join([f"it did not start in {SECONDS_TO_START} s; it says:", *said]))
        pytest.fail("\n".join(["it does not start; it says:", *said]), pytrace=False)
    return container


def _stop(container: str) -> Stop:
    begin = time.monotonic()
    docker("stop", f"--time={STOP_SECONDS}", container, seconds=STOP_SECONDS + SECONDS)
    seconds = time.monotonic() - begin
    return Stop(seconds, int(inspect("container", container)["State"]["ExitCode"]))
