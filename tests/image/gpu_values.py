"""What a GPU must compute: products, convolutions, sums, losses and curves; and what is wrong.

Whole numbers, computed here without NumPy, where a result can be exact.
"""

from __future__ import annotations

import hashlib
import math
import struct
from itertools import product as each
from typing import Any

SIDE = 32  # of the matrices, in programs/gpu_numbers.py; so are the next
BATCH, SIZE, KERNEL, CHANNELS, FILTERS = 2, 6, 3, 3, 4
#: float32 has 24 bits; XLA's own tanh and exp may lose a few.
FLOAT32 = 1e-5
#: float16 has 11 bits: a rounding of 0.05 % each, of which the mean of a loss keeps less.
FLOAT16 = 0.01
NAMES = ("product", "convolved", "to images", "to filters")


def values() -> dict[str, list[float]]:
    """Return what programs/gpu_numbers.py must get, by name, each as one row of numbers."""
    return dict(zip(NAMES, (product(), *convolution()), strict=True))


def product() -> list[float]:
    """Return the product of the two matrices."""
    left = [[(3 * i + 5 * j) % 17 - 8 for j in range(SIDE)] for i in range(SIDE)]
    right = [[(7 * i + 2 * j) % 13 - 6 for j in range(SIDE)] for i in range(SIDE)]
    return [
        float(sum(row[k] * right[k][j] for k in range(SIDE))) for row in left for j in range(SIDE)
    ]


def convolution() -> tuple[list[float], list[float], list[float]]:
    """Return the convolution, and the gradients to images and filters along the given slopes."""
    images = whole(BATCH * SIZE * SIZE * CHANNELS, 1, 5)
    filters = whole(KERNEL * KERNEL * CHANNELS * FILTERS, 2, 3)
    slopes = whole(BATCH * SIZE * SIZE * FILTERS, 3, 3)
    convolved, to_images, to_filters = ([0.0] * len(row) for row in (slopes, images, filters))
    spots = each(range(BATCH), range(SIZE), range(SIZE), range(KERNEL), range(KERNEL))
    for n, y, x, a, b in spots:
        above, beside = y + a - KERNEL // 2, x + b - KERNEL // 2
        if not (0 <= above < SIZE and 0 <= beside < SIZE):
            continue
        for c, f in each(range(CHANNELS), range(FILTERS)):
            image = ((n * SIZE + above) * SIZE + beside) * CHANNELS + c
            weight = ((a * KERNEL + b) * CHANNELS + c) * FILTERS + f
            out = ((n * SIZE + y) * SIZE + x) * FILTERS + f
            convolved[out] += images[image] * filters[weight]
            to_images[image] += slopes[out] * filters[weight]
            to_filters[weight] += slopes[out] * images[image]
    return convolved, to_images, to_filters


def whole(length: int, seed: int, base: int) -> list[float]:
    """Return small whole numbers around 0 without an order, as programs/gpu_numbers.py does."""
    found = []
    for _ in range(length):
        seed = (seed * 75 + 74) % 65537
        found.append(float(seed % base - base // 2))
    return found


def flat(values: Any) -> list[float]:
    """Return nested lists of numbers as one row."""
    return [one for part in values for one in flat(part)] if isinstance(values, list) else [values]


def wrong_values(results: list[dict[str, Any]], names: tuple[str, ...]) -> list[str]:
    """Return what is wrong, or was computed elsewhere, on each GPU.

    cuDNN may take another way to a sum (FFT, Winograd) or round what it multiplies (TF32 on Ampere
    and newer), so a convolution need only be nearest to the right whole number: no sum here has
    more than 72 terms of at most 2, of which TF32's 11 bits lose far less than half of 1.
    """
    expected, wrong = values(), []
    for number, result in enumerate(results):
        for name in names:
            found, place = nearest(name, result[name]["values"]), result[name]["device"]
            if found != expected[name] or not place.upper().endswith(f"GPU:{number}"):
                verdict = "right" if found == expected[name] else "wrong"
                wrong.append(f"{name} on {place}: {verdict}")
    return wrong


def nearest(name: str, values: Any) -> list[float]:
    """Return a row of numbers, rounded where that is allowed; what is none is left."""
    row = flat(values)
    return row if name == "product" else [round(v) if math.isfinite(v) else v for v in row]


def wrong_sums(results: list[dict[str, Any]], size: int, lengths: tuple[int, ...]) -> list[str]:
    """Return what is wrong with the ranks: one is missing, has another sum, or left its GPU."""
    ranks = sorted((one["rank"], one["size"]) for one in results)
    if ranks != [(rank, size) for rank in range(size)]:
        return [f"(rank, size) of those that wrote a result: {ranks}"]
    digests = [digest(length, size) for length in lengths]
    return [
        f"rank {one['rank']} on {found['device']}: {found['length']} numbers, {found['first']} …"
        for one in results
        for found, sha256 in zip(one["sums"], digests, strict=True)
        if found["sha256"] != sha256 or "GPU" not in found["device"].upper()
    ]


def digest(length: int, size: int) -> str:
    """Return the sha256 of the sum over all ranks: rank r brings r + 1 times 1, 2, … 7, 1, 2, …."""
    shares = size * (size + 1) // 2
    week = struct.pack("<7f", *((day + 1) * shares for day in range(7)))
    return hashlib.sha256((week * (length // 7 + 1))[: 4 * length]).hexdigest()


def wrong_step(step: dict[str, Any]) -> list[str]:
    """Return what is wrong with steps in mixed precision: type, place, or a loss."""
    faults = [] if step["type"] == "float16" else [f"computed in {step['type']}"]
    faults += [] if "GPU" in step["device"] else [f"computed on {step['device']}"]
    losses, wanted = step["losses"], step["wanted"]
    pairs = zip(losses, wanted, strict=True)
    if not all(math.isclose(one, other, rel_tol=FLOAT16) for one, other in pairs):
        faults.append(f"losses {losses}, in float32 {wanted}")
    if not losses or not losses[-1] < losses[0]:
        faults.append(f"no step lowered the loss: {losses}")
    return faults


def wrong_curve(curve: dict[str, Any]) -> list[str]:
    """Return what is wrong with tanh(x) / exp(x) at 9 points from -2 to 2."""
    points = [number / 2 - 2 for number in range(9)]
    wanted = [math.tanh(x) * math.exp(-x) for x in points]
    faults = [] if "GPU" in curve["device"] else [f"computed on {curve['device']}"]
    close = [
        math.isclose(one, other, rel_tol=FLOAT32, abs_tol=FLOAT32)
        for one, other in zip(curve["values"], wanted, strict=True)
    ]
    return faults if all(close) else [*faults, f"{curve['values']}, not {wanted}"]


def traced_events(planes: list[tuple[str, int]]) -> int:
    """Return how many events of GPUs are in a trace; planes are named as TensorBoard shows them."""
    return sum(events for name, events in planes if name.startswith("/device:GPU:"))
