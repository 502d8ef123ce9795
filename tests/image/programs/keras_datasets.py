"""Load the data sets of Keras that hold object arrays, from files made here; print their examples.

The suites have no network, and Keras refuses a file with another hash than that of its own data. So
the function that would download the file and check it is replaced.
"""

import json
import os
import sys
import tempfile

import numpy as np
from quiet_tensorflow import tf


def load(data_set, folder, names):
    """Return the sequences of a data set whose file has these `names` of arrays."""
    path = os.path.join(folder, "data.npz")
    sequences = np.array([[3, 4, 5], [6, 7]], dtype=object)
    np.savez(path, **{name: np.array([0, 1]) if "y" in name else sequences for name in names})
    module = sys.modules[data_set.load_data.__module__]
    module.get_file = lambda *_, **__: path
    # Without a shift of the words, Keras 2.9 joins the sequences of different examples.
    (trained, _), (tested, _) = data_set.load_data(
        num_words=9, index_from=1, start_char=None, oov_char=None
    )
    return sorted([list(map(int, one)) for one in [*trained, *tested]])


with tempfile.TemporaryDirectory() as folder:
    imdb = load(tf.keras.datasets.imdb, folder, ("x_train", "y_train", "x_test", "y_test"))
    reuters = load(tf.keras.datasets.reuters, folder, ("x", "y"))
print(json.dumps({"imdb": imdb, "reuters": reuters}))
