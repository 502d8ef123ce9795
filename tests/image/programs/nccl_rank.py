"""One rank of a Horovod job, a GPU a rank: one allreduce of tensors that lie on the GPUs.

Arguments: the folder into which each rank writes `rank-N.json`, and the numbers of the GPUs. Nothing
may be placed elsewhere than on the GPU, where Horovod reduces with NCCL and nothing else.
"""

import json
import os
import sys

import numpy as np

FOLDER, os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1:]

from quiet_tensorflow import IS_TF2, tf  # noqa: E402

import horovod.tensorflow as hvd  # noqa: E402

LENGTH = 1000
DEVICE = "/gpu:0"  # the only one that the rank sees, whichever it is


def brought(rank):
    """Return whole numbers that show their rank, exact in float32 when they are summed."""
    return (np.arange(LENGTH) % 7 + 1).astype("float32") * np.float32(rank + 1)


def summed():
    with tf.device(DEVICE):
        tensor = tf.constant(brought(hvd.rank()))
        return hvd.allreduce(tensor, average=False, device_dense=DEVICE)


def in_eager():
    tf.config.set_soft_device_placement(False)
    gpu = tf.config.experimental.list_physical_devices("GPU")[hvd.local_rank()]
    tf.config.experimental.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, True)
    total = summed()
    return total.device, total.numpy()


def in_session():
    config = tf.ConfigProto(allow_soft_placement=False)
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    total = summed()
    with tf.Session(config=config) as session:
        return total.device, session.run(total)


hvd.init()
device, values = in_eager() if IS_TF2 else in_session()
result = {"rank": hvd.rank(), "size": hvd.size(), "device": device, "values": values.tolist()}
with open(os.path.join(FOLDER, "rank-{}.json".format(hvd.rank())), "w") as stream:
    stream.write(json.dumps(result) + "\n")
