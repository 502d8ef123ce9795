"""Train with parameter servers: y = 2x + 1. Any TensorFlow of the matrix.

TF_CONFIG says who this is; without it, it trains alone. examples/kubernetes/tfjob.yaml starts it
in several pods.
"""

import json
import os
import tempfile

import numpy as np
import tensorflow as tf

STEPS = 300


def noisy_points():
    """Return endless batches of x and y."""
    rng = np.random.RandomState(0)
    x = rng.uniform(-1, 1, 512).astype("float32")
    y = 2 * x + 1 + rng.normal(0, 0.01, 512).astype("float32")
    return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat().batch(32)


def learnt(estimator):
    """Return the line that the newest checkpoint holds."""
    names = estimator.get_variable_names()
    (weight,) = [name for name in names if name.endswith("/x/weights")]
    (bias,) = [name for name in names if name.endswith("/bias_weights")]
    return [float(np.ravel(estimator.get_variable_value(name))[0]) for name in (weight, bias)]


def main():
    """Train as what TF_CONFIG says; the chief says at the end what all have learnt."""
    task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {"type": "chief"})
    folder = os.environ.get("MODEL_DIR") or tempfile.mkdtemp()
    estimator = tf.estimator.LinearRegressor(
        [tf.feature_column.numeric_column("x")], model_dir=folder
    )
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(noisy_points, max_steps=STEPS),
        tf.estimator.EvalSpec(noisy_points, steps=1),
    )
    if task["type"] == "chief":
        print("learnt: y = {:.2f} x + {:.2f}".format(*learnt(estimator)))


if __name__ == "__main__":
    main()
