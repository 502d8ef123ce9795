"""Learn from a table which customers leave. It stands for an old repository in docs/adopt.md."""

import argparse
import csv
from pathlib import Path

import numpy as np
import tensorflow as tf
from tabulate import tabulate
from tqdm import trange

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/churn.csv")
parser.add_argument("--epochs", type=int, default=200)
arguments = parser.parse_args()

with Path(arguments.data).open(newline="") as file:
    rows = [[float(value) for value in row] for row in list(csv.reader(file))[1:]]
table = np.array(rows, dtype=np.float32)
customers, left = table[:, :2] / table[:, :2].max(axis=0), table[:, 2:]
model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="sigmoid", input_shape=(2,))])
optimizer = tf.keras.optimizers.Adam(0.1)


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        error = tf.reduce_mean(tf.keras.losses.binary_crossentropy(left, model(customers)))
    gradients = tape.gradient(error, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return error


for _ in trange(arguments.epochs, disable=None):
    loss = train_step()
right = int(np.sum((model(customers).numpy() > 0.5) == (left > 0.5)))
print(tabulate([[len(table), right, float(loss)]], ["customers", "right", "loss"], floatfmt=".2f"))
