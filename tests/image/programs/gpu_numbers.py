"""Multiply two matrices of small whole numbers on each GPU, and print what each gives.

Argument: the numbers of the GPUs, as in `0,2`. All products are exact in float32. Nothing may be placed
elsewhere than where it is wanted.
"""

import json
import os
import sys

import numpy as np

os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]

from quiet_tensorflow import IS_TF2, tf  # noqa: E402

SIDE = 32
LEFT = np.array([[(3 * i + 5 * j) % 17 - 8 for j in range(SIDE)] for i in range(SIDE)], "float32")
RIGHT = np.array([[(7 * i + 2 * j) % 13 - 6 for j in range(SIDE)] for i in range(SIDE)], "float32")


def in_eager():
    tf.config.set_soft_device_placement(False)
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return {"devices": len(gpus), "products": [eager_product(n) for n in range(len(gpus))]}


def eager_product(ordinal):
    with tf.device("/gpu:{}".format(ordinal)):
        product = tf.matmul(tf.constant(LEFT), tf.constant(RIGHT))
    return {"device": product.device, "values": product.numpy().tolist()}


def in_session():
    from tensorflow.python.client import device_lib

    config = tf.ConfigProto(allow_soft_placement=False)
    config.gpu_options.allow_growth = True
    listed = device_lib.list_local_devices(session_config=config)
    gpus = [device for device in listed if device.device_type == "GPU"]
    with tf.Session(config=config) as session:
        products = [session_product(session, n) for n in range(len(gpus))]
    return {"devices": len(gpus), "products": products}


def session_product(session, ordinal):
    with tf.device("/gpu:{}".format(ordinal)):
        left, right = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
        product = tf.matmul(left, right)
    values = session.run(product, {left: LEFT, right: RIGHT})
    return {"device": product.device, "values": values.tolist()}


print(json.dumps(in_eager() if IS_TF2 else in_session()))
