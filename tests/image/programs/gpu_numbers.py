"""On each GPU multiply two matrices, convolve, and derive the convolution; print what each gives.

And allocate a quarter of the first GPU's free memory in another process: TensorFlow, which was told
to let its share grow, must have left it. Argument: the numbers of the GPUs, as in `0,2`. All values
are small whole numbers. Nothing may be placed elsewhere than where it is wanted.
"""

import json
import os
import sys

import numpy as np

os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]

from commands import output  # noqa: E402
from quiet_tensorflow import IS_TF2, tf  # noqa: E402

SIDE = 32
LEFT = np.array([[(3 * i + 5 * j) % 17 - 8 for j in range(SIDE)] for i in range(SIDE)], "float32")
RIGHT = np.array([[(7 * i + 2 * j) % 13 - 6 for j in range(SIDE)] for i in range(SIDE)], "float32")
ROOM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_room.py")


def whole(shape, seed, base):
    """Return small whole numbers around 0 without an order, so that no two places can be confused."""
    found = []
    for _ in range(int(np.prod(shape))):
        seed = (seed * 75 + 74) % 65537
        found.append(seed % base - base // 2)
    return np.array(found, "float32").reshape(shape)


IMAGES, FILTERS = whole((2, 6, 6, 3), 1, 5), whole((3, 3, 3, 4), 2, 3)
SLOPES = whole((2, 6, 6, 4), 3, 3)
FED = [LEFT, RIGHT, IMAGES, FILTERS, SLOPES]


def convolved(images, filters):
    return tf.nn.conv2d(images, filters, strides=[1, 1, 1, 1], padding="SAME")


def result(tensors, values):
    names = ["product", "convolved", "to images", "to filters"]
    return {
        name: {"device": tensor.device, "values": value.tolist()}
        for name, tensor, value in zip(names, tensors, values)
    }


def in_eager():
    tf.config.set_soft_device_placement(False)
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return len(gpus), [eager_result(number) for number in range(len(gpus))], room(FREE // 4)


def eager_result(ordinal):
    with tf.device("/gpu:{}".format(ordinal)):
        left, right, images, filters, slopes = map(tf.constant, FED)
        with tf.GradientTape() as tape:
            tape.watch([images, filters])
            value = convolved(images, filters)
        gradients = tape.gradient(value, [images, filters], output_gradients=slopes)
        tensors = [tf.matmul(left, right), value] + gradients
    return result(tensors, [tensor.numpy() for tensor in tensors])


def in_session():
    from tensorflow.python.client import device_lib

    config = tf.ConfigProto(allow_soft_placement=False)
    config.gpu_options.allow_growth = True
    listed = device_lib.list_local_devices(session_config=config)
    gpus = [device for device in listed if device.device_type == "GPU"]
    with tf.Session(config=config) as session:
        results = [session_result(session, number) for number in range(len(gpus))]
        return len(gpus), results, room(FREE // 4)


def session_result(session, ordinal):
    with tf.device("/gpu:{}".format(ordinal)):
        fed = [tf.placeholder(tf.float32, value.shape) for value in FED]
        left, right, images, filters, slopes = fed
        value = convolved(images, filters)
        gradients = tf.gradients(value, [images, filters], grad_ys=slopes)
        tensors = [tf.matmul(left, right), value] + gradients
    return result(tensors, session.run(tensors, dict(zip(fed, FED))))


def room(wanted):
    """Return what another process says that allocates so many bytes of the first GPU."""
    words = [sys.executable, ROOM, str(wanted)]
    return json.loads(output(words).decode())


FREE = room(0)["free"]
devices, results, left = in_eager() if IS_TF2 else in_session()
print(json.dumps({"devices": devices, "results": results, "room": left}))
