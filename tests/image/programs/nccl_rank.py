"""One rank of a Horovod job, a GPU a rank: one allreduce of tensors that lie on the GPUs.

Arguments: the folder into which each rank writes `rank-N.json`, the numbers of the GPUs, and the
lengths of the tensors. Nothing may be placed elsewhere than on the GPU, where Horovod reduces with
NCCL and nothing else. Ranks that must share a GPU say that they are of different hosts.
"""

import hashlib
import json
import os
import sys

import numpy as np

FOLDER, os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1:3]
LENGTHS = [int(length) for length in sys.argv[3:]]

from quiet_tensorflow import IS_TF2, tf  # noqa: E402

import horovod.tensorflow as hvd  # noqa: E402

DEVICE = "/gpu:0"  # the only one that the rank sees, whichever it is


def brought(length):
    """Return whole numbers that show their rank, exact in float32 when they are summed."""
    return (np.arange(length) % 7 + 1).astype("float32") * np.float32(hvd.rank() + 1)


def summed(*tensors):
    with tf.device(DEVICE):
        return [hvd.allreduce(tensor, average=False, device_dense=DEVICE) for tensor in tensors]


def in_eager(gpu):
    tf.config.set_soft_device_placement(False)
    device = tf.config.experimental.list_physical_devices("GPU")[gpu]
    tf.config.experimental.set_visible_devices(device, "GPU")
    tf.config.experimental.set_memory_growth(device, True)
    with tf.device(DEVICE):
        tensors = [tf.constant(brought(length)) for length in LENGTHS]
        totals = tf.function(summed, autograph=False)(*tensors)
    return [(total.device, total.numpy()) for total in totals]


def in_session(gpu):
    config = tf.ConfigProto(allow_soft_placement=False)
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(gpu)
    with tf.device(DEVICE):
        tensors = [tf.placeholder(tf.float32, [length]) for length in LENGTHS]
    totals = summed(*tensors)
    with tf.Session(config=config) as session:
        values = session.run(totals, dict(zip(tensors, map(brought, LENGTHS))))
    return list(zip([total.device for total in totals], values))


hvd.init()
GPUS = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
if hvd.size() > GPUS:
    # Else "Duplicate GPU detected". They talk through a socket, as different hosts do.
    os.environ.update(NCCL_HOSTID="rank {}".format(hvd.rank()), NCCL_IB_DISABLE="1")
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
totals = (in_eager if IS_TF2 else in_session)(hvd.local_rank() % GPUS)
sums = [
    {
        "device": device,
        "length": len(values),
        "first": values[:7].tolist(),
        "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
    }
    for device, values in totals
]
result = {"rank": hvd.rank(), "size": hvd.size(), "sums": sums}
with open(os.path.join(FOLDER, "rank-{}.json".format(hvd.rank())), "w") as stream:
    stream.write(json.dumps(result) + "\n")
