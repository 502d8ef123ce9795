"""Train with what Keras and estimators offer around a model, and leave it in the folder given.

Written there: model.h5, best.h5 (ModelCheckpoint; .keras with Keras 3), saved/ (a SavedModel), and a file NAME.pickle
for each function that could be pickled for another process. Printed: what each part did.
"""

import json
import sys

import cloudpickle
import numpy as np
from quiet_tensorflow import VERSION, seed, tf

from framework_model import KERAS_FILE, build, predictions, samples, save


BATCH, EPOCHS, TURN, PATIENCE, STEPS = 16, 40, 6, 3, 100


class Counter(tf.keras.callbacks.Callback):
    """Counts what it is told."""

    def __init__(self):
        super(Counter, self).__init__()
        self.batches = self.epochs = 0

    def on_batch_end(self, batch, logs=None):
        self.batches += 1

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1


def fed_by_arrays(folder):
    """Train until EarlyStopping ends it: after TURN epochs the rate is negative, and so is progress."""
    model, (a, b, y), counter = build(), samples(), Counter()
    best = folder + "/best" + KERAS_FILE
    keras = tf.keras.callbacks
    history = model.fit(
        [a, b],
        y,
        batch_size=BATCH,
        epochs=EPOCHS,
        validation_data=([a, b], y),
        shuffle=False,
        verbose=0,
        callbacks=[
            keras.LearningRateScheduler(lambda epoch: 0.2 if epoch < TURN else -0.2),
            keras.ModelCheckpoint(best, monitor="val_loss", save_best_only=True),
            keras.EarlyStopping(monitor="val_loss", patience=PATIENCE),
            counter,
        ],
    )
    model.save(folder + "/model" + KERAS_FILE)
    save(model, folder + "/saved")
    return {
        "losses": [float(loss) for loss in history.history["val_loss"]],
        "told": {"batches": counter.batches, "epochs": counter.epochs},
        "layers": [layer.__class__.__name__ for layer in model.layers],
        "predictions": predictions(model.predict),
    }


def fed_by_pipeline():
    """Train one model twice, from arrays and from tf.data; say what loss each way leaves."""
    a, b, y = samples()
    x, losses = np.hstack([a, b]), {}
    for name in ("arrays", "pipeline"):
        dense = tf.keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(2,))
        model = tf.keras.Sequential([dense])
        model.compile(optimizer=tf.keras.optimizers.SGD(0.2), loss="mse")
        if name == "arrays":
            model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
        else:
            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).repeat()
            model.fit(data, epochs=3, steps_per_epoch=len(y) // BATCH, verbose=0)
        losses[name] = float(model.evaluate(x, y, verbose=0))
    return losses


def estimate(folder):
    """Train an estimator of y = 2a - 3b + 1, and evaluate it from its checkpoint."""
    a, b, y = samples()
    columns = [tf.feature_column.numeric_column(name) for name in ("a", "b")]
    config = tf.estimator.RunConfig(tf_random_seed=1, log_step_count_steps=STEPS)
    estimator = tf.estimator.LinearRegressor(
        columns, model_dir=folder + "/estimator", config=config
    )

    def given():
        return tf.data.Dataset.from_tensor_slices(({"a": a, "b": b}, y)).repeat().batch(BATCH)

    estimator.train(given, steps=STEPS)
    found = estimator.evaluate(given, steps=len(y) // BATCH)
    return {"steps": int(found["global_step"]), "loss": float(found["average_loss"])}


# Functions for another process; cloudpickle writes those of the main program down by value.
def imports_inside(number):
    """The good way: the worker imports TensorFlow itself."""
    import tensorflow as tf

    with tf.Graph().as_default():
        return tf.constant([number, number]).shape.as_list() + [tf.keras.layers.Dense(number).units]


def names_the_module(number):
    """TensorFlow is a global of the program that sends the function."""
    return tf.keras.layers.Dense(number).units, tf.train.Checkpoint.__name__


def names_a_model(number):
    """A model is a global of the program that sends the function."""
    return MODEL.count_params() + number  # noqa: F821


def send(folder):
    """Pickle the functions; return in what words that failed, by the function's name."""
    global MODEL  # made last: an estimator's graph spoils the models before it in 2.x
    MODEL, faults = build(), {}
    for function in (imports_inside, names_the_module, names_a_model):
        try:
            pickled = cloudpickle.dumps(function)
        except Exception as error:
            faults[function.__name__] = "{}: {}".format(type(error).__name__, error)
        else:
            with open("{}/{}.pickle".format(folder, function.__name__), "wb") as file:
                file.write(pickled)
    return faults


def main(folder):
    seed(5)
    print(
        json.dumps(
            {
                "arrays": fed_by_arrays(folder),
                "data": fed_by_pipeline(),
                "estimator": estimate(folder) if VERSION < (2, 16) else None,
                "unsent": send(folder),
            }
        )
    )


main(sys.argv[1])
