"""Learn digits with a loop of one's own, a gradient tape and tf.train.Checkpoint.

The same as train.py, for TensorFlow 2.0 and newer.
"""

import argparse
import os

import horovod.tensorflow as hvd
import tensorflow as tf
from digits import test_data, training_data
from train import BATCH, RATE, network


class Training:
    """What is trained, and how: its checkpoint is the whole state."""

    def __init__(self, folder):
        self.model = network()
        self.optimizer = tf.keras.optimizers.SGD(RATE * hvd.size(), momentum=0.5)
        self.epoch = tf.Variable(0)
        state = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, epoch=self.epoch)
        self.checkpoints = tf.train.CheckpointManager(state, folder, max_to_keep=3)
        state.restore(self.checkpoints.latest_checkpoint)  # nothing, where there is none
        self.errors = tf.keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def step(self, x, y):
        """Learn from a batch; return the loss on all ranks."""
        with tf.GradientTape() as tape:
            loss = self.errors(y, self.model(x, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        return hvd.allreduce(loss)

    def share(self):
        """Give all ranks the first one's state, once the first step has made all variables."""
        hvd.broadcast_variables(self.model.variables, root_rank=0)
        hvd.broadcast_variables(self.optimizer.variables(), root_rank=0)

    def right(self, x, y):
        """Return the share of pictures whose digit is found."""
        found = tf.argmax(self.model(x), axis=1, output_type=tf.int32)
        return float(tf.reduce_mean(tf.cast(found == tf.cast(y, tf.int32), tf.float32)))


def main(folder, epochs):
    """Train from the newest checkpoint to the last epoch, and test what was learnt."""
    hvd.init()
    first = hvd.rank() == 0
    training = Training(folder)
    done = int(training.epoch)
    x, y = training_data(hvd.rank(), hvd.size())
    batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(BATCH)
    if first:
        logs = tf.summary.create_file_writer(folder + "/logs")
        print("{} rank(s), from epoch {}".format(hvd.size(), done + 1), flush=True)
    for epoch in range(done + 1, epochs + 1):
        losses = []
        for batch, (some_x, some_y) in enumerate(batches):
            losses.append(float(training.step(some_x, some_y)))
            if batch == 0:
                training.share()
        training.epoch.assign(epoch)
        if first:
            loss = sum(losses) / len(losses)
            with logs.as_default():
                tf.summary.scalar("loss", loss, step=epoch)
            training.checkpoints.save()
            print("epoch {}/{}: loss {:.3f}".format(epoch, epochs, loss), flush=True)
    if first:
        print("{:.1%} of the test digits are right".format(training.right(*test_data())))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--model", default=os.environ.get("MODEL_DIR", "model"), help="folder of checkpoints, logs"
    )
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    main(arguments.model, arguments.epochs)
