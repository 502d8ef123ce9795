"""Load a saved Keras model in a process that never saw it made; print how well it does."""

import json
import sys

from quiet_tensorflow import tf

from keras_model import account

print(json.dumps(account(tf.keras.models.load_model(sys.argv[1]))))
