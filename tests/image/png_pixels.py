"""Read the pixels of a PNG file, with the standard library alone."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Rows = list[list[tuple[int, ...]]]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: Samples a pixel, by colour type: grey, RGB, grey with alpha, RGB with alpha.
SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}


def pixels(png: bytes) -> Rows:
    """Return the rows of pixels of a file with 8 bits a sample, no palette and no interlacing.

    Raises ValueError for any other file. The format is that of ISO/IEC 15948.
    """
    if not png.startswith(SIGNATURE):
        raise ValueError(f"no PNG file: {png[:8]!r}")
    chunks = list(_chunks(png))
    header = next(body for kind, body in chunks if kind == b"IHDR")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or interlaced or colour not in SAMPLES:
        raise ValueError(f"depth {depth}, colour type {colour}, interlacing {interlaced}")
    data = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    size = SAMPLES[colour]
    if len(data) != height * (width * size + 1):
        raise ValueError(f"{len(data)} bytes of {width} x {height} pixels")
    return [_split(row, size) for row in _unfiltered(data, width * size, size)]


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        yield kind, png[at + 8 : at + 8 + length]
        at += length + 12  # length, kind and checksum are 4 bytes each


def _split(row: bytes, size: int) -> list[tuple[int, ...]]:
    return [tuple(row[at : at + size]) for at in range(0, len(row), size)]


def _unfiltered(data: bytes, width: int, size: int) -> Iterator[bytes]:
    """Give the rows, each told from its left neighbours and from the row above."""
    above = bytes(width)
    for start in range(0, len(data), width + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + width])
        for at in range(width):
            left = row[at - size] if at >= size else 0
            corner = above[at - size] if at >= size else 0
            row[at] = (row[at] + _predicted(kind, left, above[at], corner)) & 255
        above = bytes(row)
        yield above


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:
        guess = left + up - corner
        return min((left, up, corner), key=lambda neighbour: abs(guess - neighbour))
    return (0, left, up, (left + up) // 2)[kind]
