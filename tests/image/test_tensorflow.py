"""Suite `tensorflow`: the image can train, save, load and compute, and gets the numbers right.

An import proves little: wrong h5py, gast or numpy versions show only in loading a model, in
converting a function, in training.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation

pytestmark = pytest.mark.usefixtures("importable")
SECONDS = 180
CLEAR_FALL = 5  # the loss falls to a sixtieth or less in every version; untrained it stays
SAME_NUMBER = 1e-6  # float32 has 7 digits, and the same weights give the same ones


@pytest.fixture(scope="module")
def model(container: Container, expect: Expectation) -> str:
    """Return where a model is left for a second process.

    Keras 3 reads no .h5 file that says how its model was compiled.
    """
    end = "keras" if expect.tensorflow_minor >= (2, 16) else "h5"
    return f"{container.fresh_folder()}/model.{end}"


@pytest.fixture(scope="module")
def trained(container: Container, model: str) -> Ran:
    """Train a model and save it."""
    return container.forked("keras_train.py", model, seconds=SECONDS)


@pytest.fixture(scope="module")
def loaded(container: Container, model: str, trained: Ran) -> Ran:
    """Load it in a second process; without a model, say why there is none."""
    return trained if trained.failed else container.forked("keras_load.py", model, seconds=SECONDS)


@pytest.fixture(scope="module")
def graph(container: Container, expect: Expectation) -> Ran:
    """Compute with a graph, whose loop is written as this version allows."""
    loop = loop_of(expect.tensorflow_minor)
    return container.forked("graph_numbers.py", loop, seconds=SECONDS)


def loop_of(tensorflow: tuple[int, int]) -> str:
    """Return how a loop is written: converted from Python from 1.14 on, in 2.x by tf.function."""
    if tensorflow >= (2, 0):
        return "function"
    return "autograph" if tensorflow >= (1, 14) else "while_loop"


def test_training_lowers_the_loss(trained: Ran) -> None:
    """Keras learns: the loss over all samples falls clearly."""
    before, after = trained.json["before"]["loss"], trained.json["after"]["loss"]
    assert after * CLEAR_FALL < before, f"loss {before} before training, {after} after"


def test_saved_model_predicts_the_same_in_a_new_process(trained: Ran, loaded: Ran) -> None:
    """The file holds the weights."""
    made, read = trained.json["after"]["predictions"], loaded.json["predictions"]
    assert len(made) == len(read) == 8
    assert read == pytest.approx(made, rel=SAME_NUMBER, abs=SAME_NUMBER)


def test_saved_model_has_the_same_loss_in_a_new_process(trained: Ran, loaded: Ran) -> None:
    """The file holds how the model was compiled, so that training can go on."""
    made, read = trained.json["after"]["loss"], loaded.json["loss"]
    assert math.isclose(made, read, rel_tol=1e-5), f"saved with loss {made}, loaded with {read}"


def test_graph_computes_a_value_and_its_gradient(graph: Ran) -> None:
    """x³ + 2x at 3 is 33, its slope 3x² + 2 is 29."""
    assert (graph.json["value"], graph.json["gradient"]) == (33.0, 29.0)


def test_loop_runs_as_long_as_the_data_says(graph: Ran) -> None:
    """From 1, 6, 7 and 27 the Collatz sequence takes 0, 8, 16 and 111 steps to 1."""
    assert graph.json["steps"] == [0, 8, 16, 111]


def test_loop_is_in_the_graph(graph: Ran) -> None:
    """The Python code of the loop ran once, to make a graph that served all four numbers."""
    assert graph.json["traces"] == 1, f"the loop was traced {graph.json['traces']} times"


def test_data_sets_of_object_arrays_load(container: Container) -> None:
    """Sequences of different lengths are object arrays, which NumPy loads only if Keras asks."""
    examples = [[4, 5, 6], [7, 8]]
    found = container.forked("keras_datasets.py", seconds=SECONDS).json
    assert found == {"imdb": sorted(examples * 2), "reuters": examples}
