"""What the collectives of Horovod make of tensors that show the rank they came from.

The integers show whether they went through a float too (2**24 + 1, 2**53 + 1). The caller has
called `hvd.init()`.
"""

import numpy as np
from quiet_tensorflow import IS_TF2, tf

import horovod.tensorflow as hvd


def contributions(rank):
    """Return what this rank brings, by dtype."""
    return {
        "float32": np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]], "float32") * np.float32(rank + 1),
        "int32": np.array([2**24 + 1 + rank, -7 * (rank + 1), rank], "int32"),
        "int64": np.array([2**53 + 1 + rank, -7 * (rank + 1), rank], "int64"),
    }


def rows(rank, dtype):
    """Return rank + 1 rows: allgather must join tensors of unequal length."""
    return np.array([[rank, row] for row in range(rank + 1)], dtype)


def collectives(rank, root):
    """Return the tensors that the collectives give; `root` is the rank that broadcasts."""
    given = contributions(rank)
    tensors = {"mean float32": hvd.allreduce(tf.constant(given["float32"]), average=True)}
    for dtype, array in sorted(given.items()):
        tensors["sum " + dtype] = hvd.allreduce(tf.constant(array), average=False)
        tensors["broadcast " + dtype] = hvd.broadcast(tf.constant(array), root_rank=root)
        tensors["allgather " + dtype] = hvd.allgather(tf.constant(rows(rank, dtype)))
    return tensors


def values(tensors):
    """Return the tensors as lists, with the dtype that came back."""
    return {
        name: {"dtype": str(array.dtype), "values": array.tolist()}
        for name, array in evaluated(tensors).items()
    }


def evaluated(tensors):
    if IS_TF2:
        return {name: tensor.numpy() for name, tensor in tensors.items()}
    with tf.Session() as session:
        return session.run(tensors)
