"""Train or restore a model with code for TensorFlow 1.x, by `tensorflow.compat.v1`.

    old_style.py train|restore FOLDER

A session, placeholders, `tf.layers`, an optimizer of `tf.train` and its Saver. Prints the first and
the last loss, and what the model predicts.
"""

import json
import os
import sys

import quiet_tensorflow  # noqa: F401
import numpy
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

STEPS = 300


def build():
    """Return the input, the target, the prediction, the loss and a training step."""
    samples = tf.placeholder(tf.float32, (None, 2), name="samples")
    targets = tf.placeholder(tf.float32, (None, 1), name="targets")
    hidden = tf.layers.dense(samples, 16, activation=tf.nn.tanh, name="hidden")
    found = tf.layers.dense(hidden, 1, name="found")
    loss = tf.losses.mean_squared_error(targets, found)
    steps = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=steps)
    return samples, targets, found, loss, train


def main(action, folder):
    tf.set_random_seed(1)
    numbers = numpy.random.RandomState(1).uniform(-1, 1, (64, 2)).astype("float32")
    products = numbers[:, :1] * numbers[:, 1:]
    samples, targets, found, loss, train = build()
    saver, feed = tf.train.Saver(), {samples: numbers, targets: products}
    result = {}
    with tf.Session() as session:
        if action == "restore":
            saver.restore(session, tf.train.latest_checkpoint(folder))
        else:
            session.run(tf.global_variables_initializer())
            first = float(session.run(loss, feed))
            for _ in range(STEPS):
                session.run(train, feed)
            result["losses"] = [first, float(session.run(loss, feed))]
            saver.save(session, os.path.join(folder, "model"), tf.train.get_global_step())
        result["step"] = int(session.run(tf.train.get_global_step()))
        result["predictions"] = session.run(found, feed)[:4, 0].tolist()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
