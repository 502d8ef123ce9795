"""Use in a new process what `framework_train.py` left in the folder given: functions and models."""

import json
import os
import subprocess
import sys

import cloudpickle

# A received function imports TensorFlow as it is; elsewhere quiet_tensorflow sees to this.
os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
ARGUMENT = 3


def received(folder, name):
    """Call a pickled function, in a process without TensorFlow; None where there is none."""
    path = "{}/{}.pickle".format(folder, name)
    if not os.path.exists(path):
        return None
    before = "tensorflow" in sys.modules
    try:
        with open(path, "rb") as file:
            answer = cloudpickle.load(file)(ARGUMENT)
    except Exception as error:
        answer = "{}: {}".format(type(error).__name__, error)
    return {"answer": answer, "tensorflow_before": before}


def elsewhere(folder, name):
    """Start `received` in a process of its own; what a bad function does stays in there."""
    command = [sys.executable, __file__, folder, name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def models(folder):
    """Load the three models, and return what each predicts."""
    from quiet_tensorflow import tf

    from framework_model import KERAS_FILE, Scale, predictions, samples

    def load(name):
        return tf.keras.models.load_model(folder + "/" + name, custom_objects={"Scale": Scale})

    model, best = load("model" + KERAS_FILE), load("best" + KERAS_FILE)
    a, b, y = samples()
    return {
        "keras": predictions(model.predict),
        "saved_model": predictions(saved_model(folder + "/saved")),
        "best": float(best.evaluate([a, b], y, verbose=0)),
    }


def saved_model(folder):
    """Return how the SavedModel predicts, loaded without the classes that made it."""
    from quiet_tensorflow import IS_TF2, tf

    if IS_TF2:
        loaded = tf.saved_model.load(folder)  # it owns the variables

        def serve(ab):
            inputs = {name: tf.constant(x) for name, x in zip("ab", ab)}
            return list(loaded.signatures["serving_default"](**inputs).values())[0]

        return serve
    session = tf.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta = tf.saved_model.loader.load(session, ["serve"], folder)
    signature = meta.signature_def["serving_default"]

    def predict(ab):
        feed = {signature.inputs[name].name: x for name, x in zip("ab", ab)}
        return session.run(signature.outputs["y"].name, feed)

    return predict


def main(folder):
    names = ("names_the_module", "names_a_model")
    children = {name: elsewhere(folder, name) for name in names}
    good = received(folder, "imports_inside")  # first: nothing has imported TensorFlow yet
    found = {"imports_inside": good, "models": models(folder)}
    for name in names:
        found[name] = json.loads(children[name].communicate()[0].decode().splitlines()[-1])
    print(json.dumps(found))


if len(sys.argv) == 2:
    main(sys.argv[1])
else:
    print(json.dumps(received(*sys.argv[1:])))
