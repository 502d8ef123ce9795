"""Trace a step, take steps in mixed precision, run a function that XLA compiled: each on one GPU.

Arguments: the GPU, and which of the three. TensorFlow 2.3 has the first, 2.4 the second, 2.5 the
third. Prints a JSON object of them; of one that failed, why.
"""

import glob
import json
import os
import sys
import tempfile
import traceback

import numpy as np

os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # why nothing can be traced is said as an error

from quiet_tensorflow import tf  # noqa: E402

GPU, CPU = "/gpu:0", "/cpu:0"
POINTS = np.linspace(-2, 2, 9).astype("float32")
RANDOM = np.random.RandomState(1)
FEATURES = RANDOM.uniform(-1, 1, (64, 8)).astype("float32")
TARGETS = FEATURES.sum(axis=1, keepdims=True) ** 2
WEIGHTS = [RANDOM.uniform(-1, 1, shape).astype("float32") for shape in ((8, 16), (16, 1))]
STEPS = 5


def traced():
    """Return how many events each plane of the trace has; a device that was traced has a plane."""
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        with tf.device(GPU):
            float(tf.reduce_sum(tf.matmul(FEATURES, WEIGHTS[0])))
        tf.profiler.experimental.stop()
        (file,) = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb"))
        with open(file, "rb") as stream:
            return {"planes": [plane_of(plane) for plane in messages(stream.read(), 1)]}


def plane_of(plane):
    (name,) = messages(plane, 2)
    events = [event for line in messages(plane, 3) for event in messages(line, 4)]
    return [name.decode(), len(events)]


def messages(data, wanted):
    """Return the texts and messages of one number in a protobuf message.

    Where TensorFlow has the classes for it, and whether at all, is another matter in each version.
    XSpace: 1 planes. XPlane: 2 name, 3 lines. XLine: 4 events (xplane.proto).
    """
    place, found = 0, []
    while place < len(data):
        key, place = varint(data, place)
        kind = key & 7
        if kind == 0:
            place = varint(data, place)[1]
        elif kind == 2:
            length, place = varint(data, place)
            if key >> 3 == wanted:
                found.append(data[place : place + length])
            place += length
        else:
            place += {1: 8, 5: 4}[kind]
    return found


def varint(data, place):
    value = shift = 0
    while True:
        byte = data[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


def mixed():
    """Return the losses of a few steps in float16 on the GPU, and in float32 on the CPU."""
    with tf.device(CPU):
        wanted, _ = losses(tf.keras.mixed_precision.Policy("float32"))
    with tf.device(GPU):
        found, hidden = losses(tf.keras.mixed_precision.Policy("mixed_float16"))
    return {"device": hidden.device, "type": hidden.dtype.name, "losses": found, "wanted": wanted}


def losses(policy):
    """Step with Adam, which Keras compiles with XLA on a GPU from TensorFlow 2.11 on."""
    hide = tf.keras.layers.Dense(16, "tanh", use_bias=False, dtype=policy)
    last = tf.keras.layers.Dense(1, use_bias=False, dtype="float32")
    last(hide(FEATURES))
    hide.set_weights(WEIGHTS[:1])
    last.set_weights(WEIGHTS[1:])
    optimizer = tf.keras.optimizers.Adam(0.1)
    scale = unscale = lambda value: value
    if policy.compute_dtype == "float16":
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
        if hasattr(optimizer, "scale_loss"):  # Keras 3, whose optimizer unscales by itself
            scale = optimizer.scale_loss
        else:
            scale, unscale = optimizer.get_scaled_loss, optimizer.get_unscaled_gradients
    found = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            hidden = hide(FEATURES)
            loss = tf.reduce_mean((last(hidden) - TARGETS) ** 2)
            scaled = scale(loss)
        variables = hide.trainable_variables + last.trainable_variables
        gradients = tape.gradient(scaled, variables)
        gradients = unscale(gradients)
        optimizer.apply_gradients(zip(gradients, variables))
        found.append(float(loss))
    return found, hidden


def compiled():
    """Return the values of a function that is compiled, or fails; both functions need libdevice."""
    curve = tf.function(lambda x: tf.tanh(x) * tf.exp(-x), jit_compile=True)
    with tf.device(GPU):
        values = curve(tf.constant(POINTS))
    return {"device": values.device, "values": values.numpy().tolist()}


def outcome(part):
    try:
        return part()
    except Exception:
        return {"error": traceback.format_exc()}


PARTS = {"traced": traced, "mixed": mixed, "compiled": compiled}
print(json.dumps({name: outcome(PARTS[name]) for name in sys.argv[2:]}))
