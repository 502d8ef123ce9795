"""Suite `parameter_servers`: a chief, a worker and a parameter server in separate containers.

One start of the three gives all results: a training by hand with `tf.train.Server`, and one with
`tf.estimator.train_and_evaluate`, as TF_CONFIG says, which TensorFlow has up to 2.15. The numbers
are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from parameter_cluster import Cluster, run_cluster

if TYPE_CHECKING:
    from container import Ran
    from lab import Lab

pytestmark = pytest.mark.usefixtures("importable")
LASTS = 6
ESTIMATORS_UNTIL = "2.16"
BY_ESTIMATOR = "by estimator"
WAYS = ("by hand", pytest.param(BY_ESTIMATOR, marks=pytest.mark.before(ESTIMATORS_UNTIL)))

# programs/parameter_task.py: from START, each worker's steps along a gradient of its own.
START = (1.0, -2.0)
LEARNING_RATE = 0.5
GRADIENTS = {"chief": (0.5, 1.0), "worker": (2.0, -0.25)}
STEPS = {"chief": 60, "worker": 40}


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    """Run both trainings, once for all tests."""
    return run_cluster(lab)


def trained() -> list[float]:
    """Return the weights after all steps of both workers, in whatever order."""
    return [
        start - LEARNING_RATE * sum(STEPS[task] * GRADIENTS[task][i] for task in STEPS)
        for i, start in enumerate(START)
    ]


@pytest.mark.parametrize("task", sorted(STEPS))
def test_task_ends_by_itself(cluster: Cluster, task: str) -> None:
    """Neither the chief nor the worker waits for a task that has ended, or that never does."""
    assert "by hand" in _ran(cluster, task).json


def test_server_holds_the_updates_of_both_workers(cluster: Cluster) -> None:
    """No update is lost, though both wrote at once: the ps reads them in its own memory."""
    found = cluster.ps.json["by hand"]
    assert found == {"weights": trained(), "step": sum(STEPS.values())}


@pytest.mark.before(ESTIMATORS_UNTIL)
def test_estimator_ends_with_all_steps_in_its_checkpoint(cluster: Cluster) -> None:
    """The chief's last checkpoint, which the ps wrote, has the steps of both workers."""
    found: dict[str, Any] = dict(cluster.chief.json[BY_ESTIMATOR])
    del found["devices"]
    steps = sum(STEPS.values())
    assert found == {"checkpoint": f"model.ckpt-{steps}", "weights": trained(), "step": steps}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("task", sorted(STEPS))
def test_variables_are_on_the_server(cluster: Cluster, task: str, way: str) -> None:
    """Both workers put weights and global step on the ps."""
    devices = _ran(cluster, task).json[way]["devices"]
    assert {name: device.partition("/task")[0] for name, device in devices.items()} == {
        "weights": "/job:ps",
        "step": "/job:ps",
    }


def _ran(cluster: Cluster, task: str) -> Ran:
    return {"chief": cluster.chief, "worker": cluster.worker, "ps": cluster.ps}[task]
