"""One task of a cluster with a parameter server: the chief, the worker or the ps that TF_CONFIG says.

Two trainings, one after the other. The first is by hand: `tf.train.Server`, a graph whose variables
are on the ps, both workers at once, and the ps that reads what has become of its variables. The
second, up to TensorFlow 2.15, is `tf.estimator.train_and_evaluate`, which reads TF_CONFIG itself;
each waits for the other, so that its number of steps is known. The folder for the model is the argument, and is shared.

The gradients are constants that show their worker, exact in float32 together with all that follows.
The last line on standard output is the result; the ps prints one after the first training, and then
serves for ever.
"""

import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"  # TensorFlow says whom it waits for
from commands import give_up  # noqa: E402
from patience import allowed  # noqa: E402
from quiet_tensorflow import IS_TF2, VERSION, tf  # noqa: E402

PORT = 2222
LEARNING_RATE = 0.5
START = [1.0, -2.0]
GRADIENTS = {"chief": [0.5, 1.0], "worker": [2.0, -0.25]}
STEPS = {"chief": 60, "worker": 40}
SECONDS = allowed(60)
PS = "/job:ps/task:0"

v1 = tf.compat.v1 if IS_TF2 else tf
role = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
model_folder = sys.argv[1]


def session(server, *devices):
    """Open a session that needs no other devices: otherwise it waits for every task there is."""
    limit = SECONDS * 1000  # of an operation; without one it waits for ever for a ps
    config = v1.ConfigProto(device_filters=devices, operation_timeout_in_ms=limit)
    return v1.Session(server.target, config=config)


def train(weights, step):
    """Return the operation of one step on this task's data."""
    loss = tf.reduce_sum(weights * tf.constant(GRADIENTS[role]))
    optimizer = v1.train.GradientDescentOptimizer(LEARNING_RATE, use_locking=True)
    return optimizer.minimize(loss, global_step=step)


def by_hand():
    """Train with tf.train.Server; return what this task can tell of it."""
    workers = sorted(GRADIENTS)
    addresses = {"ps": ["ps"], "worker": workers}
    cluster = tf.train.ClusterSpec(
        {job: ["{}:{}".format(host, PORT) for host in hosts] for job, hosts in addresses.items()}
    )
    if role == "ps":
        server = v1.train.Server(cluster, job_name="ps", task_index=0)
        with tf.Graph().as_default(), v1.device(PS):
            return as_ps(server, len(workers), *variables())
    index = workers.index(role)
    server = v1.train.Server(cluster, job_name="worker", task_index=index)
    here = "/job:worker/task:{}".format(index)
    with tf.Graph().as_default():
        # From a cluster it would take what TF_CONFIG names, too: here the ps is one and known.
        with v1.device(v1.train.replica_device_setter(ps_tasks=1, worker_device=here)):
            return as_worker(server, here, *variables())


def variables():
    """Return weights, step and two queues; tasks that give them the same names share them."""
    weights = v1.get_variable("weights", initializer=tf.constant(START), use_resource=True)
    zero = tf.constant(0, tf.int64)
    step = v1.get_variable("step", initializer=zero, trainable=False, use_resource=True)
    with v1.device(PS):
        queues = [v1.FIFOQueue(9, tf.bool, shapes=[[]], shared_name=n) for n in ("here", "done")]
    return weights, step, queues


def as_ps(server, workers, weights, step, queues):
    """Wait for both workers to be done, and read the variables that are in this process."""
    _, done = queues
    wait, values = done.dequeue_many(workers), [weights.read_value(), step.read_value()]
    with session(server, PS) as opened:
        opened.run(wait)
        found, steps = opened.run(values)
    return {"weights": found.tolist(), "step": int(steps)}


def as_worker(server, here, weights, step, queues):
    """Take this worker's steps while the other takes its own."""
    arrived, done = queues
    once = train(weights, step)
    prepare, missing = v1.global_variables_initializer(), v1.report_uninitialized_variables()
    came, wait, end = arrived.enqueue(True), arrived.dequeue(), done.enqueue(True)
    with session(server, PS, here) as opened:
        if role == "chief":
            opened.run(prepare)
            opened.run(wait)
        else:
            wait_for(lambda: not len(opened.run(missing)), "the chief's variables")
            opened.run(came)
        for _ in range(STEPS[role]):
            opened.run(once)
        opened.run(end)
    return {"devices": {"weights": weights.device, "step": step.device}}


def wait_for(true, what):
    deadline = time.time() + SECONDS
    while not true():
        if time.time() > deadline:
            give_up("{} waited {} s for {}".format(role, SECONDS, what))
        time.sleep(0.1)


def sign(name):
    """Return a file that tells the other task how far this one is."""
    return os.path.join(model_folder, "sign-" + name)


def batches():
    """Give as many batches as this task takes steps; the chief takes its last one at the very end.

    So both train alone, and the checkpoint that the chief writes last has all steps in it.
    """
    for turn in range(STEPS[role]):
        if role == "chief" and turn == STEPS[role] - 1:
            open(sign("worker-may-train"), "w").close()
            wait_for(lambda: os.path.exists(sign("worker-is-done")), "the worker's training")
        yield turn


def by_estimator():
    """Train as TF_CONFIG says; return the checkpoint's values and where the variables were."""
    devices = {}

    def model(features, labels, mode):
        weights = v1.get_variable("weights", initializer=tf.constant(START))
        step = v1.train.get_global_step()
        devices.update(weights=weights.device, step=step.device)
        with tf.control_dependencies([features]):  # a step is one with a batch
            once = train(weights, step)
        return tf.estimator.EstimatorSpec(mode, loss=tf.reduce_sum(weights), train_op=once)

    def data():
        return tf.data.Dataset.from_generator(batches, tf.int64, [])

    if role == "worker":  # one that comes before the chief's session looks again after 30 s only
        wait_for(lambda: os.path.exists(sign("worker-may-train")), "the chief's training")
    estimator = tf.estimator.Estimator(model, config=run_config())
    train_spec = tf.estimator.TrainSpec(data, max_steps=sum(STEPS.values()))
    tf.estimator.train_and_evaluate(estimator, train_spec, tf.estimator.EvalSpec(data))
    if role == "worker":
        open(sign("worker-is-done"), "w").close()
        return {"devices": devices}
    checkpoint = tf.train.latest_checkpoint(model_folder)
    reader = tf.train.load_checkpoint(checkpoint)
    return {
        "devices": devices,
        "checkpoint": os.path.basename(checkpoint),
        "weights": reader.get_tensor("weights").tolist(),
        "step": int(reader.get_tensor("global_step")),
    }


def run_config():
    """Return the configuration; from TensorFlow 1.15 on the worker need not come 5 s late."""
    options = {"model_dir": model_folder}
    if hasattr(tf.estimator.RunConfig(**options), "experimental_max_worker_delay_secs"):
        options["experimental_max_worker_delay_secs"] = 0
    return tf.estimator.RunConfig(**options)


def in_time(train):
    """Return the result of a training; give up where an operation reached its limit."""
    try:
        return train()
    except tf.errors.DeadlineExceededError as error:
        give_up("{} waited {} s: {}".format(role, SECONDS, error))


result = {"by hand": in_time(by_hand)}
if role == "ps":
    print(json.dumps(result), flush=True)
if VERSION < (2, 16):
    result["by estimator"] = in_time(by_estimator)
elif role == "ps":  # as that of an estimator
    time.sleep(SECONDS)
print(json.dumps(result))
