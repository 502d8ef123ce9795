"""A chief, a worker and a parameter server, each in a container, as TFJob starts them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from container import Ran
from docker_command import docker
from limits import allowed

if TYPE_CHECKING:
    from lab import Lab

TASKS = ("chief", "worker", "ps")
PORT = 2223
#: On a volume that all tasks share, as TensorFlow asks for: the ps itself writes its variables.
MODEL = "/imgbuild-suite/model"
PROGRAMS = "/imgbuild-suite/programs"
PROGRAM = f"{PROGRAMS}/parameter_task.py"
SECONDS = 90
#: For the worker, once the chief has ended well, or has not.
SECONDS_TO_END, SECONDS_TO_FAIL = 30, 3


@dataclass(frozen=True)
class Cluster:
    """What each task printed; the ps is still running, so its exit code is 0."""

    chief: Ran
    worker: Ran
    ps: Ran


def tf_config(task: str) -> str:
    """Return TF_CONFIG for the container of that name.

    >>> json.loads(tf_config("ps"))["task"]
    {'type': 'ps', 'index': 0}
    """
    cluster = {name: [f"{name}:{PORT}"] for name in TASKS}
    return json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}})


def run_cluster(lab: Lab) -> Cluster:
    """Start all tasks, and wait for the chief and the worker to end; a ps never does."""
    network = lab.network()
    environment = {task: f"--env=TF_CONFIG={tf_config(task)}" for task in TASKS}
    chief = lab.join(network, "chief", "--volume=/imgbuild-suite", environment["chief"])
    chief.run("mkdir", MODEL, seconds=10)
    chief.run("cp", "-r", chief.programs, PROGRAMS, seconds=10)
    words = ("timeout", str(allowed(SECONDS)), "python", PROGRAM, MODEL)
    shared = f"--volumes-from={lab.id_of('chief')}"
    for task in TASKS[1:]:
        where = (f"--network={network}", f"--network-alias={task}")
        lab.bare(task, *where, shared, environment[task], command=words)
    ran = chief.run("python", PROGRAM, MODEL, seconds=SECONDS)
    left = SECONDS_TO_FAIL if ran.failed else SECONDS_TO_END
    return Cluster(ran, _ended(lab, "worker", left), _running(lab, "ps"))


def _ended(lab: Lab, task: str, seconds: int) -> Ran:
    """Wait for the end of a task's container; one that does not end has timeout's exit code."""
    container = lab.id_of(task)
    try:
        code = int(docker("wait", container, seconds=seconds))
    except subprocess.TimeoutExpired:
        code = 124
    return _result(container, task, code)


def _running(lab: Lab, task: str) -> Ran:
    """Return what a task printed until now; one that has ended has its own exit code."""
    container = lab.id_of(task)
    state = json.loads(docker("inspect", "--format={{json .State}}", container))
    code = 0 if state["Running"] else state["ExitCode"] or 1
    return _result(container, task, code)


def _result(container: str, task: str, code: int) -> Ran:
    logs = subprocess.run(
        ["docker", "logs", container], capture_output=True, timeout=allowed(10), check=False
    )
    stdout, stderr = (text.decode(errors="replace") for text in (logs.stdout, logs.stderr))
    return Ran(f"python {PROGRAM} {MODEL} (container {task})", SECONDS, code, stdout, stderr)
