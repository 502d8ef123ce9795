"""A training of several steps by Keras' `fit` and by a loop of one's own, with Horovod and without.

The ranks start equal, and each has data of its own: only what they reduce can keep them equal.
"""

import numpy as np
from quiet_tensorflow import IS_TF2, VERSION, tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras

LEARNING_RATE = 0.05
ROWS, BATCH, EPOCHS = 8, 4, 3
# Without it Keras 2.0 and 2.1 fail with Horovod's optimizer; 2.2 and 2.3 do not mind it.
FIT_OPTIONS = {"experimental_run_tf_function": False} if IS_TF2 and VERSION < (2, 4) else {}


def numbers(seed, *shapes):
    """Return arrays of these shapes, the same for the same seed."""
    random = np.random.RandomState(seed)
    return [random.uniform(-1, 1, shape).astype("float32") for shape in shapes]


def data(rank):
    return numbers(rank, (ROWS, 3), (ROWS, 1))


def start():
    return numbers(9, (3, 4), (4,), (4, 1), (1,))


def network():
    """Return a Keras model whose weights are those at the start."""
    hidden = tf.keras.layers.Dense(4, activation="tanh", input_shape=(3,))
    model = tf.keras.Sequential([hidden, tf.keras.layers.Dense(1)])
    model.set_weights(start())
    return model


def batches(x, y):
    for _ in range(EPOCHS):
        for row in range(0, ROWS, BATCH):
            yield x[row : row + BATCH], y[row : row + BATCH]


def by_fit(x, y, together):
    # With state, but not Adam: up to 1.12 Keras' own reads its number of steps while it counts them,
    # and one process without Horovod gave 17 results in 60 trainings.
    model, optimizer = network(), tf.keras.optimizers.SGD(LEARNING_RATE, momentum=0.9)
    if together:
        optimizer = hvd_keras.DistributedOptimizer(optimizer)
    model.compile(optimizer, loss="mse", **FIT_OPTIONS)
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    return model.get_weights()


def by_tape(x, y, together):
    """TensorFlow 2: a loop with a tape of Horovod's around TensorFlow's."""
    model, optimizer = network(), tf.keras.optimizers.Adam(LEARNING_RATE)
    for rows, targets in batches(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows) - targets))
        if together:
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return model.get_weights()


def in_session(x, y, together):
    """TensorFlow 1: a loop around a training operation of Horovod's optimizer."""
    optimizer = tf.train.AdamOptimizer(LEARNING_RATE)
    if together:
        optimizer = hvd.DistributedOptimizer(optimizer)
    weights = [tf.Variable(value) for value in start()]
    rows, targets = (tf.placeholder(tf.float32, (BATCH, size)) for size in (3, 1))
    hidden = tf.tanh(tf.matmul(rows, weights[0]) + weights[1])
    error = tf.matmul(hidden, weights[2]) + weights[3] - targets
    train = optimizer.minimize(tf.reduce_mean(tf.square(error)), var_list=weights)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for batch in batches(x, y):
            session.run(train, dict(zip((rows, targets), batch)))
        return session.run(weights)


def trainings(rank):
    """Return the weights after each way of training, with Horovod and without."""
    ways = {"fit": by_fit, "loop": by_tape if IS_TF2 else in_session}
    x, y = data(rank)
    return {
        way: {
            name: np.concatenate([one.ravel() for one in train(x, y, name == "together")]).tolist()
            for name in ("together", "alone")
        }
        for way, train in sorted(ways.items())
    }
