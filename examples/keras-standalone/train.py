"""Train with standalone Keras: y = 2x + 1, learnt from noisy points; save the model and load it."""

import tempfile

import keras
import numpy as np
import tensorflow as tf


def main():
    """Train, save, load, and say what was learnt, by whom."""
    rng = np.random.RandomState(0)
    x = rng.uniform(-1, 1, (512, 1))
    y = 2 * x + 1 + rng.normal(0, 0.01, (512, 1))
    model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    model.fit(x, y, epochs=20, batch_size=32, verbose=0)
    path = tempfile.mkdtemp() + "/model.h5"
    model.save(path)
    loaded = keras.models.load_model(path)
    (weight,), (bias,) = (value.ravel() for value in loaded.get_weights())
    print(
        "Keras {} on TensorFlow {} learnt: y = {:.2f} x + {:.2f}".format(
            keras.__version__, tf.__version__, weight, bias
        )
    )


if __name__ == "__main__":
    main()
