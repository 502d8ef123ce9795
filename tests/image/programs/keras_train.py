"""Train a small Keras model, save it as HDF5 to the path given, print how well it does."""

import json
import sys

from quiet_tensorflow import seed, tf

from keras_model import account, samples

seed(7)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(32, activation="tanh", input_shape=(2,)),
        tf.keras.layers.Dense(1),
    ]
)
model.compile(optimizer=tf.keras.optimizers.Adam(0.05), loss="mse")
before = account(model)
x, y = samples()
model.fit(x, y, batch_size=64, epochs=40, shuffle=False, verbose=0)
model.save(sys.argv[1])
print(json.dumps({"before": before, "after": account(model)}))
