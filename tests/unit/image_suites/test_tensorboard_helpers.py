"""What the suite `tensorboard` judges by: PNG files and buckets."""

import struct
import zlib
from collections.abc import Sequence

import pytest
from png_pixels import pixels
from tensorboard_content import wrong_buckets


def _chunk(kind: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


def _png(width: int, colour: int, rows: Sequence[bytes], laced: int = 0) -> bytes:
    """Return a PNG file of rows that begin with their filter, its data in two chunks."""
    header = struct.pack(">IIBBBBB", width, len(rows), 8, colour, 0, 0, laced)
    data = zlib.compress(b"".join(rows))
    chunks = [(b"IHDR", header), (b"IDAT", data[:5]), (b"IDAT", data[5:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def test_rows_are_told_from_their_neighbours() -> None:
    """Each of the five filters of the format gives the same row: 10, 20, 40."""
    rows = [
        bytes([0, 10, 20, 40]),
        bytes([1, 10, 10, 20]),  # from the left
        bytes([2, 0, 0, 0]),  # from above
        bytes([3, 5, 5, 10]),  # from the mean of both
        bytes([4, 0, 0, 0]),  # from the nearest of left, above and the corner
    ]
    assert pixels(_png(3, 0, rows)) == [[(10,), (20,), (40,)]] * 5
    # Colours have their samples.
    assert pixels(_png(2, 2, [bytes([0, 1, 2, 3, 4, 5, 6])])) == [[(1, 2, 3), (4, 5, 6)]]


@pytest.mark.parametrize(
    "png",
    [
        b"GIF89a",
        _png(1, 3, [bytes(2)]),  # colour type
        _png(1, 0, [bytes(2)], laced=1),
        _png(2, 0, [bytes(2)]),  # one pixel of two
    ],
)
def test_other_files_are_refused(png: bytes) -> None:
    with pytest.raises(ValueError, match=r"PNG|depth|pixels"):
        pixels(png)


VALUES = [-1.0, 0.0, 0.5, 2.0]


@pytest.mark.parametrize(
    ("buckets", "fault"),
    [
        ([[-1.0, 0.0, 2], [0.0, 2.0, 2]], "[-1.0, 0.0) counts 2, holds 1"),
        ([[-1.0, 0.0, 1], [0.0, 1.0, 2]], "3 values in all, written: 4"),
        ([[-2.0, 2.0, 4]], "least to greatest value: (-2.0, 2.0)"),
        ([], "0 values in all, written: 4"),
    ],
)
def test_wrong_buckets_are_told(buckets: list[list[float]], fault: str) -> None:
    # The older format: first and last are cut at least and greatest value, before they begin.
    right = [[-1.0, -1.1, 0], [-1.1, 0.0, 1], [0.0, 1.9, 2], [1.9, 2.1, 1], [2.1, 2.0, 0]]
    assert wrong_buckets(right, VALUES) == []
    assert any(fault in told for told in wrong_buckets(buckets, VALUES))
