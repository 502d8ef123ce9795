"""Let tf.keras.datasets of TensorFlow 1.11 to 1.14 load its data with NumPy 1.16.3 and newer.

    keras_datasets.py SITE_PACKAGES

The files of `imdb` and `reuters` hold object arrays. Since version 1.16.3, NumPy loads such arrays
only if its caller passes `allow_pickle=True`. Keras checks a file's hash before it loads the file.
Older NumPy would need no change, but has a known vulnerability. RECORD gets the new hashes. The
program ends with an error if TensorFlow's files are not as expected. Runs with Python 3.6.
"""

import os
import re
import sys

import slim

#: The modules without the argument, by TensorFlow's minor version. Source: its wheels.
MODULES = {
    "1.11": ("imdb", "reuters"),
    "1.12": ("imdb", "reuters"),
    "1.13": ("imdb", "reuters"),
    "1.14": ("reuters",),
}
DATASETS = os.path.join("tensorflow", "python", "keras", "datasets")
CALL = "  with np.load(path) as f:\n"
CHANGED = "  # Changed by imgbuild: allow_pickle.\n  with np.load(path, allow_pickle=True) as f:\n"
DISTRIBUTION = re.compile(r"tensorflow(?:_gpu)?-(\d+\.\d+)\.[\d.]+\.dist-info")


def main(tree):
    """Change the modules in a tree of installed packages that has such a TensorFlow."""
    names = [name for name in os.listdir(tree) if DISTRIBUTION.fullmatch(name)]
    if not names:
        return
    minor = DISTRIBUTION.fullmatch(names[0]).group(1)
    paths = [os.path.join(DATASETS, module + ".py") for module in MODULES.get(minor, ())]
    for path in paths:
        allow_pickle(os.path.join(tree, path))
    slim.update_records(tree, set(paths))


def allow_pickle(path):
    """Add the argument to the one call of np.load in a module."""
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    if text.count("np.load(") != 1 or CALL not in text:
        sys.exit("{}: np.load is not called as in TensorFlow 1.11 to 1.14".format(path))
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text.replace(CALL, CHANGED))


if __name__ == "__main__":
    main(sys.argv[1])
