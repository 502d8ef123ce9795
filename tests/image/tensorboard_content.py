"""What events_write.py wrote, and what TensorBoard's answers say of it."""

from __future__ import annotations

import base64
import re
import struct
from typing import TYPE_CHECKING

from png_pixels import pixels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from png_pixels import Rows

FIRST_STEPS, ALL_STEPS = range(2), range(4)
SCALARS = {
    "loss": [1.0 / (step + 3) for step in ALL_STEPS],
    "rate/scaled": [-1e-7 * (step + 1) for step in ALL_STEPS],
}
SPREAD = [number / 10.0 for number in range(-20, 40)]
PICTURE = [
    [(255, 0, 0), (0, 255, 0), (0, 0, 255)],
    [(0, 0, 0), (255, 255, 255), (12, 34, 56)],
]
NOTE_HTML = "<p><strong>bold</strong> and 1 &lt; 2</p>"
NODE = ("suite/double", "Mul")
VECTORS = [0.5, -1.0, 1.5, 2.0, -2.5, 3.0, 4.0, 8.0]
VECTORS_SHAPE = [4, 2]
LABELS = "one\ntwo\nthree\nfour\n"
#: The runs of one point at step 7: alone in the second folder; written last, in the first.
ALONE, LATE = {"answer": [[7, 42.0]]}, {"answer": [[7, 43.0]]}

Buckets = list[list[float]]


def float32(value: float) -> float:
    """Return the float32 nearest to `value`."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def points(tag: str, steps: Sequence[int]) -> list[list[float]]:
    """Return step and value of a tag's points, exact to the last bit of a float32."""
    return [[step, float32(SCALARS[tag][step])] for step in steps]


def scalars(steps: Sequence[int]) -> dict[str, list[list[float]]]:
    """Return every tag's points."""
    return {tag: points(tag, steps) for tag in SCALARS}


def wrong_buckets(buckets: Buckets, values: Sequence[float]) -> list[str]:
    """Return what is wrong with a histogram: each bucket counts the values in it.

    A bucket [left, right, count] holds its left edge; the last one its right edge, too. The first
    and the last edge are the least and the greatest value, which in the older formats makes
    outermost buckets that end before they begin, and are empty.
    """
    rounded = [float32(value) for value in values]
    faults = [
        f"[{left}, {right}) counts {count}, holds {held}"
        for left, right, count in buckets
        if count != (held := _held(rounded, left, right))
    ]
    found = sum(count for _, _, count in buckets)
    if found != len(values):
        faults.append(f"{found} values in all, written: {len(values)}")
    edges = (buckets[0][0], buckets[-1][1]) if buckets else None
    if edges != (min(rounded), max(rounded)):
        faults.append(f"from least to greatest value: {edges}")
    return faults


def _held(values: Sequence[float], left: float, right: float) -> int:
    greatest = max(values)
    return sum(left <= value < right or left < value == right == greatest for value in values)


def graph_nodes(text: str) -> list[tuple[str, str]]:
    """Return name and operation of each node of a graph in protobuf's text format.

    TensorBoard numbers the graphs of a run that has several, as of 2.16 and newer: graph_1/NAME.
    """
    node = r'^node \{\n  name: "(?:graph_\d+/)?([^"]*)"\n  op: "([^"]*)"$'
    return re.findall(node, text, re.MULTILINE)


def floats(encoded: str) -> list[float]:
    """Return the float32 numbers in a base64 text."""
    body = base64.b64decode(encoded)
    return [float(number) for (number,) in struct.iter_unpack("<f", body)]


def picture(encoded: str) -> Rows:
    """Return the pixels of a PNG file in a base64 text."""
    return pixels(base64.b64decode(encoded))
