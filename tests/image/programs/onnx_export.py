"""Write a Keras model as ONNX into the folder given, in two ways, and print what it predicts.

model.onnx comes from the model in memory, saved_model.onnx from a SavedModel by tf2onnx's command.
Run with tf2onnx and onnx on PYTHONPATH. The samples are left as samples.npz.
"""

import json
import sys

import numpy as np
from commands import output
from quiet_tensorflow import IS_TF2, seed, tf

import onnx
import tf2onnx
from framework_model import save

OPSET = 9


def build():
    """Return a model with an image and four numbers as inputs, and five probabilities as output."""
    layers = tf.keras.layers
    image, numbers = tf.keras.Input((8, 8, 1), name="image"), tf.keras.Input((4,), name="numbers")
    x = layers.Conv2D(4, 3, activation="relu", padding="same")(image)
    x = layers.Flatten()(layers.MaxPooling2D()(x))
    y = layers.Dense(8, activation="tanh")(numbers)
    z = layers.Dense(5, activation="softmax")(layers.concatenate([x, y]))
    return tf.keras.Model([image, numbers], z)


def samples(count):
    """Return `count` samples by the names of the inputs."""
    rng = np.random.RandomState(1)
    return {
        "image": rng.rand(count, 8, 8, 1).astype("float32"),
        "numbers": rng.rand(count, 4).astype("float32"),
    }


def exported(model):
    """Return the model in memory as ONNX: as it is in 2.x, its graph with the weights before."""
    if IS_TF2:
        inputs = [tf.TensorSpec(t.shape, t.dtype, name=t.name.split(":")[0]) for t in model.inputs]
        return tf2onnx.convert.from_keras(model, input_signature=inputs, opset=OPSET)[0]
    session, output = tf.keras.backend.get_session(), model.outputs[0]
    graph = tf.graph_util.convert_variables_to_constants(
        session, session.graph.as_graph_def(), [output.op.name]
    )
    inputs = [tensor.name for tensor in model.inputs]
    return tf2onnx.convert.from_graph_def(
        graph, input_names=inputs, output_names=[output.name], opset=OPSET
    )[0]


def convert_saved_model(folder):
    """Run tf2onnx's command as a user does."""
    command = [sys.executable, "-m", "tf2onnx.convert", "--saved-model", folder + "/saved"]
    command += ["--output", folder + "/saved_model.onnx", "--opset", str(OPSET)]
    output(command)


def main(folder):
    seed(11)
    model, given = build(), samples(3)
    onnx.save(exported(model), folder + "/model.onnx")
    save(model, folder + "/saved")
    convert_saved_model(folder)
    for name in ("model", "saved_model"):
        onnx.checker.check_model(folder + "/{}.onnx".format(name))
    np.savez(folder + "/samples.npz", **given)
    predicted = model.predict([given["image"], given["numbers"]])
    found = {"numpy": np.__version__, "tensorflow": tf.__version__, "tf2onnx": tf2onnx.__version__}
    print(json.dumps(dict(found, predictions=predicted.tolist())))


main(sys.argv[1])
