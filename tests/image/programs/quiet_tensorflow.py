"""TensorFlow without its chatter, so that what a failing program prints last is its fault."""

import gc
import logging
import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # programs that wait for others say more
# The CPU's numbers are what most suites know; programs that want GPUs say so before.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
warnings.simplefilter("ignore")  # numpy's FutureWarnings on the import of TensorFlow <= 1.14

gc.disable()  # its search finds nothing in an import, and takes a fourteenth of the time
import tensorflow as tf  # noqa: E402

gc.enable()
logging.getLogger("tensorflow").setLevel(logging.ERROR)

IS_TF2 = tf.__version__.startswith("2.")
#: Its first two numbers.
VERSION = tuple(map(int, tf.__version__.split(".")[:2]))


def seed(number):
    """Make this process draw the same weights every time."""
    if IS_TF2:
        tf.random.set_seed(number)
    else:
        tf.set_random_seed(number)
