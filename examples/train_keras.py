"""Train a small Keras model: y = 2x + 1, learnt from noisy points. Any TensorFlow of the matrix."""

import numpy as np
import tensorflow as tf


def main():
    """Train, save the model, and say what it learnt."""
    rng = np.random.RandomState(0)
    x = rng.uniform(-1, 1, (512, 1)).astype("float32")
    y = 2 * x + 1 + rng.normal(0, 0.01, (512, 1)).astype("float32")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    board = tf.keras.callbacks.TensorBoard("logs")
    model.fit(x, y, epochs=20, batch_size=32, verbose=2, callbacks=[board])
    model.save("model.h5")
    (weight,), (bias,) = (value.ravel() for value in model.get_weights())
    print("learnt: y = {:.2f} x + {:.2f}".format(weight, bias))


if __name__ == "__main__":
    main()
