"""Bytes that come piece by piece, as a file that can be read."""

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO

#: How much is read or sent at once, in bytes.
CHUNK = 1 << 20


class _Pieces(io.RawIOBase):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def as_file(pieces: Iterable[bytes]) -> BinaryIO:
    """Return a file that reads the pieces, once and in order."""
    return io.BufferedReader(_Pieces(pieces), CHUNK)


def read_pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield what is left of a file."""
    while piece := file.read(CHUNK):
        yield piece
