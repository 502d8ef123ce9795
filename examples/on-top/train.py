"""Train on every rank of an MPI job, or alone; the first rank writes TensorBoard's event files.

The one argument is their folder. Any TensorFlow of the matrix.
"""

import sys

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf


def compile_options():
    """Return what Keras of 2.0 and 2.1 needs so that Horovod's optimizer is not bypassed."""
    old = tf.__version__.startswith(("2.0.", "2.1."))
    return {"experimental_run_tf_function": False} if old else {}


def main(logs):
    """Train, and say on the first rank what all of them learnt together."""
    hvd.init()
    rng = np.random.RandomState(hvd.rank())
    x = rng.uniform(-1, 1, (512, 1)).astype("float32")
    y = 2 * x + 1 + rng.normal(0, 0.01, (512, 1)).astype("float32")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer=optimizer, loss="mse", **compile_options())
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.TensorBoard(logs))
    model.fit(x, y, epochs=20, batch_size=32, verbose=0, callbacks=callbacks)
    if hvd.rank() == 0:
        (weight,), (bias,) = (value.ravel() for value in model.get_weights())
        print("{} ranks learnt: y = {:.2f} x + {:.2f}".format(hvd.size(), weight, bias))


if __name__ == "__main__":
    main(*sys.argv[1:])
