"""Send a function that uses TensorFlow to other processes. Any TensorFlow of the matrix.

The function imports TensorFlow itself. With `tf`, a model or a dataset as a global of this file it
would fail, by version in one way or another: see docs/frameworks.md.
"""

import subprocess
import sys

import cloudpickle

WORKER = "import cloudpickle, sys; f, x = cloudpickle.load(sys.stdin.buffer); print(f(x))"


def train(slope):
    """Learn y = slope * x, and return the slope found."""
    import numpy as np  # noqa: PLC0415 - inside: the worker imports them
    import tensorflow as tf  # noqa: PLC0415

    x = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.2), loss="mse")
    model.fit(x, slope * x, epochs=30, batch_size=16, verbose=0)
    return round(float(model.get_weights()[0][0][0]), 2)


def start(slope):
    """Start a worker, as Horovod's launchers and Spark do: a new Python gets a pickle."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    worker.stdin.write(cloudpickle.dumps((train, slope)))
    worker.stdin.close()
    return worker


def main():
    """Train two slopes in two workers at once."""
    slopes = (2.0, -3.0)
    for slope, worker in [(slope, start(slope)) for slope in slopes]:
        found = worker.stdout.read().decode().split()
        if worker.wait() != 0:
            sys.exit("the worker for slope {} failed".format(slope))
        print("slope {}: learnt {}".format(slope, found[-1]))


if __name__ == "__main__":
    main()
