"""Learn digits with Keras, alone or on all ranks of an MPI job. Any TensorFlow of the matrix.

After each epoch a checkpoint is written into the folder --model, from which the same command goes
on after whatever ended it; ranks on several machines share that folder. TensorBoard's events are
beside them, in logs/.
"""

import argparse
import os
from pathlib import Path

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from digits import test_data, training_data

BATCH, RATE = 50, 0.05


def network():
    """Return a small convolutional network."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(8, 5, strides=2, activation="relu", input_shape=(28, 28, 1)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def new_model():
    """Return the network, ready to be trained: the rate grows with the number of ranks."""
    model = network()
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(RATE * hvd.size(), momentum=0.5))
    # Without it Keras of TensorFlow 2.0 and 2.1 bypasses Horovod's optimizer; newer ones need none.
    old = tf.__version__.startswith(("2.0.", "2.1."))
    options = {"experimental_run_tf_function": False} if old else {}
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], **options)
    return model


def newest_checkpoint(folder):
    """Return the last epoch's checkpoint and its number, or None and 0."""
    last = max(folder.glob("epoch-???.h5"), default=None)
    return last, int(last.stem[-3:]) if last else 0


class EachEpoch(tf.keras.callbacks.Callback):
    """Writes the checkpoint and says the loss; on the first rank alone."""

    def __init__(self, folder, epochs):
        super(EachEpoch, self).__init__()
        self.folder, self.epochs = folder, epochs

    def on_epoch_end(self, epoch, logs=None):
        """Save under another name first: whoever is killed here leaves no half a checkpoint."""
        unfinished = self.folder / "unfinished.h5"
        self.model.save(str(unfinished))
        unfinished.rename(self.folder / "epoch-{:03d}.h5".format(epoch + 1))
        print("epoch {}/{}: loss {:.3f}".format(epoch + 1, self.epochs, logs["loss"]), flush=True)


def main(folder, epochs):
    """Train from the newest checkpoint to the last epoch, and test what was learnt."""
    hvd.init()
    first = hvd.rank() == 0
    folder.mkdir(parents=True, exist_ok=True)
    path, done = newest_checkpoint(folder)
    model = hvd.load_model(str(path)) if path else new_model()
    # By default TensorFlow 2 profiles the second batch, for seconds.
    unprofiled = {"profile_batch": 0} if tf.__version__.startswith("2.") else {}
    # The order counts: the average over the ranks comes before those who say the loss.
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    if first:
        callbacks += [
            tf.keras.callbacks.TensorBoard(str(folder / "logs"), **unprofiled),
            EachEpoch(folder, epochs),
        ]
        print("{} rank(s), from epoch {}".format(hvd.size(), done + 1), flush=True)
    x, y = training_data(hvd.rank(), hvd.size())
    model.fit(
        x,
        y,
        batch_size=BATCH,
        initial_epoch=done,
        epochs=epochs,
        validation_data=test_data(),
        verbose=0,
        callbacks=callbacks,
    )
    if first:
        _, right = model.evaluate(*test_data(), verbose=0)
        print("{:.1%} of the test digits are right".format(right))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--model",
        type=Path,
        default=os.environ.get("MODEL_DIR", "model"),
        help="folder of checkpoints and logs",
    )
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    main(arguments.model, arguments.epochs)
