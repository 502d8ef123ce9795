"""Pictures of handwritten-like digits, made here: nothing is downloaded, and a seed gives the same.

`python digits.py FILE.npz` writes them down for other programs.
"""

import sys

import numpy as np

#: Five columns and seven rows a digit.
FONT = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
SIZE, SCALE = 28, 3
TRAINING, TEST = 6000, 1000


def digits(count, seed):
    """Return pictures (count, 28, 28, 1), float32 from 0 to 1, and the digits on them (count,)."""
    rng = np.random.RandomState(seed)
    shapes = [np.array([[int(dot) for dot in row] for row in d.split()], "float32") for d in FONT]
    large = [np.kron(shape, np.ones((SCALE, SCALE), "float32")) for shape in shapes]
    height, width = large[0].shape
    labels = rng.randint(0, len(FONT), count)
    pictures = rng.normal(0, 0.3, (count, SIZE, SIZE)).astype("float32")
    for picture, label in zip(pictures, labels):
        top, left = rng.randint(0, SIZE - height + 1), rng.randint(0, SIZE - width + 1)
        picture[top : top + height, left : left + width] += rng.uniform(0.4, 1) * large[label]
    return np.clip(pictures, 0, 1)[..., np.newaxis], labels


def training_data(rank=0, ranks=1):
    """Return the part of the training pictures that a rank learns from."""
    x, y = digits(TRAINING, seed=1)
    return x[rank::ranks], y[rank::ranks]


def test_data():
    """Return pictures that none is trained with."""
    return digits(TEST, seed=2)


if __name__ == "__main__":
    x, y = training_data()
    x_test, y_test = test_data()
    np.savez_compressed(sys.argv[1], x=x, y=y, x_test=x_test, y_test=y_test)
