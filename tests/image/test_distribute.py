"""Suite `distribute`: strategies of `tf.distribute` train right over gRPC, by a loop and by `fit`.

Each strategy's tasks are processes of one container, as TF_CONFIG says, on its loopback. One start
gives the results of both ways to train.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import nodes_numbers
import pytest
from expectation import KERAS_3, USE_KERAS_2, Expectation, read_expectation
from limits import allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from container import Container, Ran

SINCE = "1.14"
pytestmark = pytest.mark.usefixtures("importable")
LASTS = 15
SECONDS = 180
SAME_NUMBER = 1e-5  # the weights are small differences of larger float32 numbers
WORKERS = 2
#: By strategy: the tasks of its cluster, of which the first job's train and the others serve.
TASKS = {"mirrored": {"worker": WORKERS}, "served": {"chief": 1, "worker": 1, "ps": 1}}
#: The first TensorFlow that trains in these ways; Keras 3 has no `fit` with them, tf-keras has.
FIRST = {"mirrored": {"loop": (1, 14), "fit": (1, 14)}, "served": {"loop": (2, 4), "fit": (2, 5)}}


def ways(strategy: str, expect: Expectation) -> list[str]:
    """Return how this TensorFlow trains with a strategy."""
    version = expect.tensorflow_minor
    fits = version < KERAS_3 or expect.has_keras_2
    known = FIRST[strategy].items()
    return [way for way, first in known if version >= first and (fits or way != "fit")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test a way to train."""
    expect = read_expectation(Path(metafunc.config.getoption("--expect")))
    for strategy in TASKS:
        if strategy in metafunc.fixturenames:
            metafunc.parametrize(strategy, ways(strategy, expect))


@pytest.fixture(scope="module")
def run(container: Container, expect: Expectation) -> Callable[[str], Ran]:
    """Return how a strategy's cluster is run: once for all tests."""
    training = {
        "start": nodes_numbers.START,
        "rate": nodes_numbers.LEARNING_RATE,
        "steps": nodes_numbers.STEPS,
        "features": nodes_numbers.FEATURES[:WORKERS],
        "targets": nodes_numbers.TARGETS[:WORKERS],
    }
    keras = USE_KERAS_2 if expect.has_keras_2 else ()

    @cache
    def cluster(strategy: str) -> Ran:
        job, task = map(container.path_of, ("distribute_job.py", "distribute_task.py"))
        words = (str(allowed(SECONDS)), json.dumps(TASKS[strategy]), task, json.dumps(training))
        start = (*keras, "python", job, *words, *ways(strategy, expect))
        return container.run(*start, seconds=SECONDS + 30)

    return cluster


def test_all_reduce_gives_every_worker_the_sum(run: Callable[[str], Ran]) -> None:
    """Each worker brings its number, beginning with 1."""
    found = [result["loop"]["sum"] for result in run("mirrored").json]
    assert found == [sum(range(1, WORKERS + 1))] * WORKERS


def test_workers_end_with_the_same_bits(run: Callable[[str], Ran], mirrored: str) -> None:
    """MultiWorkerMirroredStrategy: the weights are bit-equal after steps on different data."""
    first, second = (result[mirrored]["weights"] for result in run("mirrored").json)
    assert first == second, f"weights: worker 0 {first}, worker 1 {second}"


def test_workers_train_as_one_process(run: Callable[[str], Ran], mirrored: str) -> None:
    """The weights are those of one process with all data, and with worker 0's weights at first."""
    expected = pytest.approx(nodes_numbers.trained(WORKERS), rel=SAME_NUMBER)
    assert run("mirrored").json[0][mirrored]["weights"] == expected


@pytest.mark.since("2.4")
def test_parameter_server_has_what_the_worker_learnt(
    run: Callable[[str], Ran], served: str
) -> None:
    """ParameterServerStrategy: variables are on the server, and their values those of all steps."""
    (found,) = run("served").json
    expected = pytest.approx(nodes_numbers.trained(WORKERS), rel=SAME_NUMBER)
    assert found[served] == {"weights": expected, "job": "/job:ps/replica:0"}
