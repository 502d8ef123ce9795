"""The Keras model of the suite `frameworks`, with two inputs and a layer of its own; its samples."""

import numpy as np

from quiet_tensorflow import IS_TF2, VERSION, tf

#: Keras 3 reads no .h5 file that says how its model was compiled.
KERAS_FILE = ".keras" if VERSION >= (2, 16) else ".h5"
PROBE = np.array([[0.5, -0.25], [-1.0, 0.75], [0.0, 0.0]], dtype="float32")


class Scale(tf.keras.layers.Layer):
    """Multiplies by one weight that it learns."""

    def build(self, shape):
        self.factor = self.add_weight(name="factor", shape=(1,), initializer="ones")
        super(Scale, self).build(shape)

    def call(self, inputs):
        return inputs * self.factor

    def compute_output_shape(self, shape):
        return shape


def build():
    """Return the model: y = w·(factor·a) + v·b + c, of the inputs a and b."""
    a = tf.keras.Input(shape=(1,), name="a")
    b = tf.keras.Input(shape=(1,), name="b")
    joined = tf.keras.layers.concatenate([Scale(name="scale")(a), b])
    y = tf.keras.layers.Dense(1, name="y", kernel_initializer="zeros")(joined)
    model = tf.keras.Model(inputs=[a, b], outputs=y)
    model.compile(optimizer=tf.keras.optimizers.SGD(0.2), loss="mse")
    return model


def samples(count=64):
    """Return a, b and y = 2a - 3b + 1, the same ones every time."""
    rng = np.random.RandomState(3)
    a, b = rng.uniform(-1, 1, (2, count, 1)).astype("float32")
    return a, b, 2 * a - 3 * b + 1


def predictions(predict):
    """Return what `predict([a, b])` gives at the probe."""
    return [float(y) for y in np.ravel(predict([PROBE[:, :1], PROBE[:, 1:]]))]


def save(model, folder):
    """Write a SavedModel: Keras' own in 2.x, what serves from 2.16 on, in 1.x the graph."""
    if VERSION >= (2, 16):
        model.export(folder, verbose=False)
        return
    if IS_TF2:
        model.save(folder, save_format="tf")
        return
    inputs = dict(zip(model.input_names, model.inputs))
    session = tf.keras.backend.get_session()
    tf.saved_model.simple_save(session, folder, inputs, {"y": model.outputs[0]})
