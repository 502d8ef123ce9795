"""Run the ONNX models in the folder given with onnxruntime, without TensorFlow.

Run with onnxruntime and numpy on PYTHONPATH. Each model is asked for all samples at once, and for
each alone: the number of samples is free.
"""

import json
import sys

import numpy as np
import onnxruntime


def answers(path, given):
    session = onnxruntime.InferenceSession(path)
    inputs = {i.name: given[i.name.split(":")[0]] for i in session.get_inputs()}

    def run(first, last):
        return session.run(None, {name: x[first:last] for name, x in inputs.items()})[0].tolist()

    count = len(next(iter(inputs.values())))
    return {"together": run(0, count), "alone": [run(i, i + 1)[0] for i in range(count)]}


def main(folder):
    given = np.load(folder + "/samples.npz")
    names = ("model", "saved_model")
    found = {name: answers("{}/{}.onnx".format(folder, name), given) for name in names}
    found["onnxruntime"], found["tensorflow"] = onnxruntime.__version__, "tensorflow" in sys.modules
    print(json.dumps(found))


main(sys.argv[1])
