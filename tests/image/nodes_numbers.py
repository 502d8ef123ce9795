"""What the ranks of `programs/nodes_rank.py` must find, computed here for any number of them."""

from __future__ import annotations

from typing import Any

# The program's training: what rank 0 starts from, and each rank's batch.
START = (0.1, -0.2)
LEARNING_RATE = 0.05
STEPS = 5
FEATURES = (
    ((1.1, 2.3), (3.7, -1.9)),
    ((0.3, 1.7), (2.9, 2.1)),
    ((-1.3, 0.7), (0.9, 1.9)),
)
TARGETS = ((1.3, 2.7), (3.1, -1.1), (0.5, -2.3))

# What rank r brings to a collective (programs/horovod_collectives.py): (r + 1) times the floats,
# and integers that are not exact in the float of their size. Every sum is exact in its type.
FLOATS = ((0.5, 1.5, 2.5), (3.5, 4.5, 5.5))
LARGE = {"int32": 2**24 + 1, "int64": 2**53 + 1}
DTYPES = ("float32", *LARGE)


def collectives(size: int) -> dict[str, dict[str, Any]]:
    """Return what every collective gives each of `size` ranks, of which the last one broadcasts."""
    total = size * (size + 1) // 2
    found: dict[str, Any] = {
        "mean float32": _floats(total / size),
        "sum float32": _floats(total),
        "broadcast float32": _floats(size),
    }
    for dtype, large in LARGE.items():
        found[f"sum {dtype}"] = [size * large + total - size, -7 * total, total - size]
        found[f"broadcast {dtype}"] = [large + size - 1, -7 * size, size - 1]
    for dtype in DTYPES:
        found[f"allgather {dtype}"] = [[r, row] for r in range(size) for row in range(r + 1)]
    return {name: {"dtype": name.split()[1], "values": values} for name, values in found.items()}


def _floats(factor: float) -> list[list[float]]:
    return [[number * factor for number in row] for row in FLOATS]


def trained(size: int) -> list[float]:
    """Return the weights of one process that trains on the batches of `size` ranks as one batch.

    Gradient descent on the mean of (w · row - target)², in double precision.
    """
    rows = [row for batch in FEATURES[:size] for row in batch]
    targets = [target for batch in TARGETS[:size] for target in batch]
    weights = list(START)
    for _ in range(STEPS):
        errors = [
            sum(w * x for w, x in zip(weights, row, strict=True)) - target
            for row, target in zip(rows, targets, strict=True)
        ]
        columns = zip(*rows, strict=True)
        gradient = [
            2 * sum(e * x for e, x in zip(errors, column, strict=True)) / len(rows)
            for column in columns
        ]
        weights = [w - LEARNING_RATE * g for w, g in zip(weights, gradient, strict=True)]
    return weights
