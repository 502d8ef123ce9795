"""One task of a cluster, as TF_CONFIG says, that trains with a strategy of `tf.distribute`.

Arguments: the training as JSON (start, learning rate, steps, features and targets of each worker),
and the ways to train. A job `ps` in the cluster makes it ParameterServerStrategy, which trains on
all data at once; otherwise it is MultiWorkerMirroredStrategy, where each worker has data of its own
and all but the first start from other weights, which they must not keep.
TensorFlow 1.14 and 1.15 train as 2.0 does. The last line on standard output is the result.
"""

import json
import os
import sys

import numpy as np
from quiet_tensorflow import IS_TF2, tf

if not IS_TF2:
    tf.compat.v1.enable_v2_behavior()
training, ways = json.loads(sys.argv[1]), sys.argv[2:]
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
features = np.array(training["features"], "float32")
targets = np.array(training["targets"], "float32")[..., np.newaxis]
joined = features.reshape(-1, features.shape[-1]), targets.reshape(-1, 1)
first = np.array(training["start"], "float32").reshape(-1, 1) + index
rate, steps = training["rate"], training["steps"]
experimental = tf.distribute.experimental


def gradient(weights, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
    return tape.gradient(loss, weights)


def result(weights, device=None, total=None):
    found = {"weights": np.ravel(weights).astype(float).tolist()}
    found.update({} if device is None else {"job": device.partition("/task")[0]})
    found.update({} if total is None else {"sum": float(total)})
    return found


def keras_model():
    constant = tf.constant_initializer(first)
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=constant, input_shape=(2,))
    model = tf.keras.Sequential([layer])
    model.compile(tf.keras.optimizers.SGD(rate), loss="mse")
    return model


def batches(_=None):
    """Give all data as one batch, without an end; a strategy shards it by workers itself."""
    return tf.data.Dataset.from_tensor_slices(joined).batch(len(joined[0])).repeat()


def mirrored_loop(strategy):
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    with strategy.scope():
        weights = tf.Variable(first, name="weights", aggregation=tf.VariableAggregation.MEAN)
    x, y = features[index], targets[index]

    def replica_sum():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(index + 1.0))

    @tf.function
    def total():
        return run(replica_sum)

    @tf.function
    def step():
        run(lambda: weights.assign_sub(rate * gradient(weights, x, y)))

    found = total()
    for _ in range(steps):
        step()
    return result(weights.numpy(), total=found)


def mirrored_fit(strategy):
    with strategy.scope():
        model = keras_model()
    model.fit(batches(), epochs=1, steps_per_epoch=steps, verbose=0)
    return result(model.get_weights()[0])


def served_loop(strategy):
    coordinator = experimental.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(first)

    @tf.function
    def step():
        strategy.run(lambda: weights.assign_sub(rate * gradient(weights, *joined)))

    for _ in range(steps):
        coordinator.schedule(step)
    coordinator.join()
    return result(weights.numpy(), weights.device)


def served_fit(strategy):
    with strategy.scope():
        model = keras_model()
    data = tf.keras.utils.experimental.DatasetCreator(batches)
    model.fit(data, epochs=1, steps_per_epoch=steps, verbose=0)
    return result(model.get_weights()[0], model.weights[0].device)


def parameter_servers():
    """Return the strategy; a worker and a ps serve, and never come back."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if job != "chief":
        cluster = resolver.cluster_spec()
        tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc").join()
    return experimental.ParameterServerStrategy(resolver)


if "ps" in config["cluster"]:
    strategy, train = parameter_servers(), {"loop": served_loop, "fit": served_fit}
else:
    stable = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
    strategy = (stable or experimental.MultiWorkerMirroredStrategy)()
    train = {"loop": mirrored_loop, "fit": mirrored_fit}
print(json.dumps({way: train[way](strategy) for way in ways}), flush=True)
# Threads of TensorFlow's now and then abort a worker that leaves Python in the usual way, in 2.6 to
# 2.8 at least: "terminate called without an active exception" (tensorflow#55250).
os._exit(0)
