"""Train on every rank of an MPI job, each with its own data. Any TensorFlow of the matrix."""

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf


def compile_options():
    """Return what Keras of 2.0 and 2.1 needs so that Horovod's optimizer is not bypassed."""
    old = tf.__version__.startswith(("2.0.", "2.1."))
    return {"experimental_run_tf_function": False} if old else {}


def main():
    """Train, and say on the first rank what all of them learnt together."""
    hvd.init()
    rng = np.random.RandomState(hvd.rank())
    x = rng.uniform(-1, 1, (512, 1)).astype("float32")
    y = 2 * x + 1 + rng.normal(0, 0.01, (512, 1)).astype("float32")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer=optimizer, loss="mse", **compile_options())
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(x, y, epochs=20, batch_size=32, verbose=0, callbacks=[start])
    if hvd.rank() == 0:
        (weight,), (bias,) = (value.ravel() for value in model.get_weights())
        print("{} ranks learnt: y = {:.2f} x + {:.2f}".format(hvd.size(), weight, bias))


if __name__ == "__main__":
    main()
