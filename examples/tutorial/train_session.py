"""Learn digits with a graph and a session of TensorFlow 1.

The same as train.py, for TensorFlow 1.10 to 1.15. MonitoredTrainingSession writes checkpoints and
TensorBoard's events, and goes on from the newest checkpoint by itself.
"""

import argparse
import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from digits import TRAINING, test_data, training_data

BATCH, RATE = 50, 0.05


def network(pictures):
    """Return what the network says of pictures, before the softmax."""
    found = tf.layers.conv2d(pictures, 8, 5, strides=2, activation=tf.nn.relu)
    found = tf.layers.conv2d(found, 16, 5, strides=2, activation=tf.nn.relu)
    return tf.layers.dense(tf.layers.flatten(found), 10)


def share_of_right(folder, logits, pictures):
    """Return the share of the test pictures whose digit the newest checkpoint finds."""
    x, y = test_data()
    with tf.Session() as session:
        tf.train.Saver().restore(session, tf.train.latest_checkpoint(folder))
        return np.mean(np.argmax(session.run(logits, {pictures: x}), axis=1) == y)


def main(folder, epochs):
    """Train from the newest checkpoint to the last epoch, and test what was learnt."""
    hvd.init()
    first = hvd.rank() == 0
    pictures = tf.placeholder(tf.float32, [None, 28, 28, 1])
    labels = tf.placeholder(tf.int64, [None])
    logits = network(pictures)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    tf.summary.scalar("loss", loss)
    global_step = tf.train.get_or_create_global_step()
    optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(RATE * hvd.size(), 0.5))
    learn = optimizer.minimize(loss, global_step)
    an_epoch = TRAINING // BATCH // hvd.size()
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),  # the first rank alone has read the checkpoint
        tf.train.StopAtStepHook(last_step=epochs * an_epoch),
    ]
    x, y = training_data(hvd.rank(), hvd.size())
    rng = np.random.RandomState(hvd.rank())
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder if first else None,
        save_checkpoint_secs=None,
        save_checkpoint_steps=an_epoch,
        save_summaries_steps=an_epoch // 6,
        hooks=hooks,
    ) as session:
        # Without the hooks, which ask for a summary and so for pictures.
        step = session.run_step_fn(lambda step_context: step_context.session.run(global_step))
        losses = []
        if first:
            print("{} rank(s), from epoch {}".format(hvd.size(), step // an_epoch + 1), flush=True)
        while not session.should_stop():
            some = rng.randint(0, len(x), BATCH)
            feed = {pictures: x[some], labels: y[some]}
            _, value, step = session.run([learn, loss, global_step], feed)
            losses.append(value)
            if first and step % an_epoch == 0:
                said = "epoch {}/{}: loss {:.3f}".format(step // an_epoch, epochs, np.mean(losses))
                print(said, flush=True)
                losses = []
    if first:
        right = share_of_right(folder, logits, pictures)
        print("{:.1%} of the test digits are right".format(right))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--model", default=os.environ.get("MODEL_DIR", "model"), help="folder of checkpoints, logs"
    )
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    main(arguments.model, arguments.epochs)
