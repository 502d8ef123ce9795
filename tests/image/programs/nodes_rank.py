"""One rank of a Horovod job over several nodes: collectives, and a training of several steps.

Arguments: the folder for `rank-N.json`, the number of ranks, and `leave` or `stay`. A rank that
stays goes on reducing without end; rank 0 writes `reducing` once that is well under way.
"""

import os
import socket
import sys
import time

import numpy as np
from horovod_collectives import collectives, values
from quiet_tensorflow import IS_TF2, tf
from rank_file import write

import horovod.tensorflow as hvd

LEARNING_RATE = 0.05
STEPS = 5
STARTS = ([0.1, -0.2], [9.0, 9.0], [-7.0, 8.0])  # the others must take over rank 0's
FEATURES = ([[1.1, 2.3], [3.7, -1.9]], [[0.3, 1.7], [2.9, 2.1]], [[-1.3, 0.7], [0.9, 1.9]])
TARGETS = ([[1.3], [2.7]], [[3.1], [-1.1]], [[0.5], [-2.3]])
ROUNDS = 20  # of reducing until it is under way
PAUSE = 0.01  # seconds between two of them: the processor is for others, too


def train_eagerly(rank):
    """TensorFlow 2: broadcast the weights, train on this rank's batch; return the weights.

    By the collectives themselves: what Horovod has for whole models, which the suite `horovod`
    uses, is rewritten by AutoGraph first, and that takes each rank a second.
    """
    weights = tf.Variable(np.array(STARTS[rank], "float32").reshape(2, 1))
    x, y = np.array(FEATURES[rank], "float32"), np.array(TARGETS[rank], "float32")
    optimizer = tf.keras.optimizers.SGD(LEARNING_RATE)
    weights.assign(hvd.broadcast(weights.read_value(), root_rank=0))
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        mean = hvd.allreduce(tape.gradient(loss, weights), average=True)
        optimizer.apply_gradients([(mean, weights)])
    return weights.numpy()


def train_in_session(rank):
    """TensorFlow 1: broadcast the weights, train on this rank's batch; return the weights."""
    weights = tf.Variable(np.array(STARTS[rank], "float32").reshape(2, 1))
    error = tf.matmul(tf.constant(FEATURES[rank], tf.float32), weights) - tf.constant(TARGETS[rank])
    optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(LEARNING_RATE))
    train = optimizer.minimize(tf.reduce_mean(tf.square(error)))
    share = hvd.broadcast_global_variables(0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(share)
        for _ in range(STEPS):
            session.run(train)
        return session.run(weights)


def reduce_once():
    """Return a function that takes part in one allreduce."""
    if IS_TF2:
        return lambda: hvd.allreduce(tf.constant([1.0]), average=False)
    session = tf.Session()
    reduced = hvd.allreduce(tf.constant([1.0]), average=False)
    return lambda: session.run(reduced)


def stay(folder, rank):
    """Reduce without end, and say so."""
    once = reduce_once()
    for turn in range(sys.maxsize):
        once()
        if turn == ROUNDS and rank == 0:
            open(os.path.join(folder, "reducing"), "w").close()
        time.sleep(PAUSE)


folder, size, then = sys.argv[1], int(sys.argv[2]), sys.argv[3]
hvd.init()
rank = hvd.rank()
if hvd.size() != size:  # the launcher and the library are of two MPIs: each process is alone
    sys.exit("this is rank {} of {}, where {} were started".format(rank, hvd.size(), size))
weights = (train_eagerly if IS_TF2 else train_in_session)(rank)
write(
    folder,
    rank,
    {
        "rank": rank,
        "size": hvd.size(),
        "node": socket.gethostname(),
        "encoding": sys.stdout.encoding,
        "collectives": values(collectives(rank, root=size - 1)),
        "weights": weights.ravel().astype(float).tolist(),
        "weight bits": weights.tobytes().hex(),
    },
)
if then == "stay":
    stay(folder, rank)
