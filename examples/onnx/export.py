"""Convert a checkpoint of the tutorial to ONNX, and see that onnxruntime predicts the same.

The arguments are the checkpoint and the file to write.
"""

import sys

import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from digits import test_data

#: What onnxruntime 1.10.0, the last for Python 3.6, runs, and tf2onnx converts every layer to.
OPSET = 13


def main(checkpoint, path):
    """Convert, predict in both ways, and fail unless the probabilities are the same."""
    model = tf.keras.models.load_model(checkpoint, compile=False)  # to predict needs no Horovod
    tf2onnx.convert.from_keras(model, opset=OPSET, output_path=path)
    x, y = test_data()
    wanted = model.predict(x)
    runtime = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = [each.name for each in runtime.get_inputs()]
    (found,) = runtime.run(None, {name: x})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    right = np.mean(np.argmax(found, axis=1) == y)
    print("onnxruntime: {:.1%} of the test digits are right, as with Keras".format(right))


if __name__ == "__main__":
    main(*sys.argv[1:])
