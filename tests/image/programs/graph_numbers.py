"""Compute with a graph: a value and its gradient, and a loop whose length depends on the data.

Argument: how the loop is written, which the suite chooses by version:
  while_loop  by hand (TensorFlow before 1.14)
  autograph   converted from Python, run in a Session (1.14, 1.15)
  function    converted from Python by tf.function (2.x)
"""

import json
import sys

from quiet_tensorflow import IS_TF2, tf

NUMBERS = [1, 6, 7, 27]  # Collatz: 0, 8, 16 and 111 steps to 1
traces = []


def python_steps(n):
    traces.append(n)  # Python code: runs when the graph is made, not when it is computed
    steps = tf.constant(0)
    while n > 1:
        if tf.equal(n % 2, 0):
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


def while_loop_steps(n):
    traces.append(n)

    def step(n, steps):
        return tf.cond(tf.equal(n % 2, 0), lambda: n // 2, lambda: 3 * n + 1), steps + 1

    return tf.while_loop(lambda n, steps: n > 1, step, (n, tf.constant(0)))[1]


def polynomial(x):
    return x * x * x + 2.0 * x


def in_session(steps):
    """TensorFlow 1: build the graph once, feed it each number."""
    n, x = tf.placeholder(tf.int32, ()), tf.placeholder(tf.float32, ())
    count, value = steps(n), polynomial(x)
    gradient = tf.gradients(value, x)[0]
    with tf.Session() as session:
        return {
            "steps": [int(session.run(count, {n: number})) for number in NUMBERS],
            "value": float(session.run(value, {x: 3.0})),
            "gradient": float(session.run(gradient, {x: 3.0})),
        }


def in_function():
    """TensorFlow 2: trace once, call with each number."""
    steps = tf.function(python_steps)

    @tf.function
    def value_and_gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = polynomial(x)
        return value, tape.gradient(value, x)

    value, gradient = value_and_gradient(tf.constant(3.0))
    return {
        "steps": [int(steps(tf.constant(number))) for number in NUMBERS],
        "value": float(value),
        "gradient": float(gradient),
    }


def compute(loop):
    if loop == "function":
        return in_function()
    if loop == "autograph":
        return in_session(tf.autograph.to_graph(python_steps))
    return in_session(while_loop_steps)


print(json.dumps(dict(compute(sys.argv[1]), traces=len(traces), eager=IS_TF2)))
