"""Train with parameter servers and Keras: y = 2x + 1. TensorFlow 2.5 and newer.

TF_CONFIG says who this is. The chief hands out the steps; workers and parameter servers do what it
says, and never end by themselves.
"""

import numpy as np
import tensorflow as tf

EPOCHS, STEPS = 10, 30


def noisy_points(context):
    """Return a worker's endless batches of x and y."""
    rng = np.random.RandomState(context.input_pipeline_id)
    x = rng.uniform(-1, 1, (512, 1)).astype("float32")
    y = 2 * x + 1 + rng.normal(0, 0.01, (512, 1)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(512).repeat().batch(32)


def serve(cluster):
    """Be a worker or a parameter server until the process is stopped."""
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id
    )
    server.join()


def train(cluster):
    """Train on all workers, and say what they have learnt."""
    strategy = tf.distribute.experimental.ParameterServerStrategy(cluster)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
        # Workers do not wait for each other, so a step is several: no run_eagerly, no large rate.
        model.compile(tf.keras.optimizers.SGD(0.1), "mse", steps_per_execution=5)
    points = tf.keras.utils.experimental.DatasetCreator(noisy_points)
    model.fit(points, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=0)
    (weight,), (bias,) = (value.ravel() for value in model.get_weights())
    print("learnt: y = {:.2f} x + {:.2f}".format(weight, bias))


if __name__ == "__main__":
    this = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if this.task_type == "chief":
        train(this)
    else:
        serve(this)
