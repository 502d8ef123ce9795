"""Suite `frameworks`: what users write around a model: callbacks, tf.data, SavedModel, pickles.

The model has two inputs and a layer of its own. Its samples lie on a plane, and its rate turns
negative on purpose, so that where training ends, and which epoch was the best, is known.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from expectation import KERAS_2, USE_KERAS_2
from pickling import fault_of_model, fault_of_module

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation

pytestmark = pytest.mark.usefixtures("importable")
#: What docs/frameworks.md says of another version than the matrix's was not tried.
DESCRIBED = pytest.mark.in_version("cloudpickle", "2.2.1")
SECONDS = 120
# Those of programs/framework_train.py: batches an epoch, epochs forwards, and then backwards.
BATCHES, TURN, PATIENCE, STEPS = 4, 6, 3, 100
SAME_NUMBER = 1e-5
VARIANCE = 13 / 3  # of y = 2a - 3b + 1, a and b even between -1 and 1


@pytest.fixture(scope="module")
def folder(container: Container) -> str:
    """Return where models and functions are left for the second process."""
    return container.fresh_folder()


@pytest.fixture(scope="module")
def trained(container: Container, folder: str) -> Ran:
    """Train, save and pickle, in one process."""
    return container.forked("framework_train.py", folder, seconds=SECONDS)


@pytest.fixture(scope="module")
def loaded(container: Container, folder: str, trained: Ran) -> Ran:
    """Load and unpickle in a second process; without anything to load, say why."""
    if trained.failed:
        return trained
    return container.program("framework_load.py", folder, seconds=SECONDS)


def test_functional_model_has_its_own_layer(trained: Ran) -> None:
    """Two inputs go through a layer of this program's into one output."""
    layers = trained.json["arrays"]["layers"]
    assert sorted(layers) == ["Concatenate", "Dense", "InputLayer", "InputLayer", "Scale"]


def test_early_stopping_ends_the_training(trained: Ran) -> None:
    """The loss falls while the rate is positive; three worse epochs later training ends."""
    losses = trained.json["arrays"]["losses"]
    assert len(losses) == TURN + PATIENCE, f"{len(losses)} epochs, losses {losses}"
    assert losses[:TURN] == sorted(losses[:TURN], reverse=True)
    assert losses[TURN - 1 :] == sorted(losses[TURN - 1 :])


def test_own_callback_is_told_of_every_batch(trained: Ran) -> None:
    """A callback of this program's is called at the end of each batch and epoch."""
    epochs = TURN + PATIENCE
    assert trained.json["arrays"]["told"] == {"batches": BATCHES * epochs, "epochs": epochs}


def test_checkpoint_is_the_best_epoch_and_not_the_last(trained: Ran, loaded: Ran) -> None:
    """ModelCheckpoint kept the model of the lowest loss, and it loads in a new process."""
    losses, best = trained.json["arrays"]["losses"], loaded.json["models"]["best"]
    assert best == pytest.approx(min(losses), rel=1e-3), f"losses {losses}"


@pytest.mark.parametrize("file", ["keras", "saved_model"])
def test_model_predicts_the_same_in_a_new_process(trained: Ran, loaded: Ran, file: str) -> None:
    """Keras' own file with the layer's class, and the SavedModel without it."""
    made, read = trained.json["arrays"]["predictions"], loaded.json["models"][file]
    assert len(made) == len(read) == 3
    assert read == pytest.approx(made, rel=SAME_NUMBER, abs=SAME_NUMBER)


def test_a_pipeline_trains_as_arrays_do(trained: Ran) -> None:
    """From tf.data and from arrays the same batches leave the same loss."""
    arrays, pipeline = (trained.json["data"][name] for name in ("arrays", "pipeline"))
    assert math.isclose(arrays, pipeline, rel_tol=1e-4), f"arrays {arrays}, tf.data {pipeline}"


@pytest.mark.before("2.16")
def test_estimator_trains_and_evaluates_from_its_checkpoint(trained: Ran) -> None:
    """A linear estimator explains nearly all of the samples' variance."""
    found = trained.json["estimator"]
    assert found["steps"] == STEPS
    assert found["loss"] < VARIANCE / 10, f"loss {found['loss']}, variance {VARIANCE:.2f}"


def test_function_that_imports_inside_arrives(trained: Ran, loaded: Ran) -> None:
    """The documented cure works: the worker, new and without TensorFlow, imports it itself."""
    assert "imports_inside" not in trained.json["unsent"], trained.json["unsent"]
    assert loaded.json["imports_inside"] == {"answer": [2, 3], "tensorflow_before": False}


@DESCRIBED
def test_function_that_names_the_module_fares_as_documented(
    trained: Ran, loaded: Ran, expect: Expectation
) -> None:
    """The pitfall: `tf` as a global works or fails by version, as docs/frameworks.md says."""
    sender = trained.json["unsent"].get("names_the_module")
    received = loaded.json["names_the_module"] or {"answer": None}
    fault = fault_of_module(expect.tensorflow_release, sender, received["answer"])
    assert fault is None, fault


@DESCRIBED
def test_function_that_names_a_model_fares_as_documented(
    trained: Ran, loaded: Ran, expect: Expectation
) -> None:
    """The pitfall of all but the newest: a compiled model as a global of the function."""
    sender = trained.json["unsent"].get("names_a_model")
    received = loaded.json["names_a_model"] or {"answer": None}
    fault = fault_of_model(expect.tensorflow_minor, sender, received["answer"])
    assert fault is None, fault


@pytest.mark.since("2.0")
@pytest.mark.before("2.16")
def test_code_of_tensorflow_1_trains_and_restores(container: Container) -> None:
    """A program of 1.x style runs with `import tensorflow.compat.v1 as tf` and one line more."""
    must_train_and_restore(container)


@pytest.mark.packaged(KERAS_2)
def test_code_of_tensorflow_1_trains_and_restores_with_keras_2(container: Container) -> None:
    """The same where Keras is Keras 3, which has no `tf.layers`: with tf-keras in its place."""
    must_train_and_restore(container, *USE_KERAS_2)


def must_train_and_restore(container: Container, *before: str) -> None:
    """Fail unless the program learns, and a new process continues from its checkpoint."""
    folder = container.fresh_folder()
    program = (*before, "python", container.path_of("old_style.py"))
    trained = container.run(*program, "train", folder, seconds=SECONDS).json
    first, last = trained["losses"]
    assert last < first / 10, f"losses {trained['losses']}"
    restored = container.run(*program, "restore", folder, seconds=SECONDS).json
    assert restored["step"] == trained["step"] > 0
    assert restored["predictions"] == trained["predictions"]
