"""One rank of a Horovod job: collectives, one step, and trainings, in each way of this version.

Argument: the folder into which each rank writes `rank-N.json`; what a launcher prints of several
ranks is mixed, files are not.
"""

import os
import sys

import numpy as np
from horovod_adasum import FUSION_BYTES, adasum
from horovod_collectives import collectives, values
from horovod_training import FIT_OPTIONS, trainings
from quiet_tensorflow import IS_TF2, tf
from rank_file import write

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras

LEARNING_RATE = 0.1
STARTS = ([0.1, -0.2], [9.0, 9.0])  # rank 1 must take over rank 0's
FEATURES = ([[1.1, 2.3], [3.7, -1.9]], [[0.3, 1.7], [2.9, 2.1]])
TARGETS = ([[1.3], [2.7]], [[3.1], [-1.1]])


def step_in_keras(rank):
    """TensorFlow 2: broadcast the weights, one batch of `fit`; return the weights."""
    layer = tf.keras.layers.Dense(1, use_bias=False, input_shape=(2,))
    model = tf.keras.Sequential([layer])
    layer.set_weights([np.array(STARTS[rank], "float32").reshape(2, 1)])
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(LEARNING_RATE))
    model.compile(optimizer, loss="mse", **FIT_OPTIONS)
    hvd.broadcast_variables(model.variables, root_rank=0)
    x, y = np.array(FEATURES[rank], "float32"), np.array(TARGETS[rank], "float32")
    model.fit(x, y, batch_size=len(x), epochs=1, verbose=0)
    return layer.get_weights()[0]


def step_by_tape(rank):
    """TensorFlow 2: the same with a tape of Horovod's around one's own loop."""
    weights = tf.Variable(np.array(STARTS[rank], "float32").reshape(2, 1))
    hvd.broadcast_variables([weights], root_rank=0)
    x, y = np.array(FEATURES[rank], "float32"), np.array(TARGETS[rank], "float32")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
    tf.keras.optimizers.SGD(LEARNING_RATE).apply_gradients(zip(gradients, [weights]))
    return weights.numpy()


def step_in_session(rank):
    """TensorFlow 1: broadcast the weights, one training operation; return the weights."""
    weights = tf.Variable(np.array(STARTS[rank], "float32").reshape(2, 1))
    error = tf.matmul(tf.constant(FEATURES[rank], tf.float32), weights) - tf.constant(TARGETS[rank])
    optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(LEARNING_RATE))
    train = optimizer.minimize(tf.reduce_mean(tf.square(error)))
    share = hvd.broadcast_global_variables(0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(share)
        session.run(train)
        return session.run(weights)


os.environ["HOROVOD_FUSION_THRESHOLD"] = str(FUSION_BYTES)
hvd.init()
rank = hvd.rank()
if hvd.size() != 2:  # the launcher and the library are of two MPIs: each process is alone
    sys.exit("this is rank {} of {}, where two were started".format(rank, hvd.size()))
collected = values(collectives(rank, root=1))
added = adasum(rank)
steps = {"keras": step_in_keras, "tape": step_by_tape} if IS_TF2 else {"session": step_in_session}
weights = {way: step(rank) for way, step in sorted(steps.items())}
write(
    sys.argv[1],
    rank,
    {
        "rank": rank,
        "size": hvd.size(),
        "collectives": collected,
        "adasum": added,
        "weights": {way: found.ravel().astype(float).tolist() for way, found in weights.items()},
        "weight bits": {way: found.tobytes().hex() for way, found in weights.items()},
        "trained": trainings(rank),
    },
)
