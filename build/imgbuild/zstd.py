"""Zstandard: the standard library's, which Pythons before 3.14 get as a package."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdCompressor, ZstdError, ZstdFile
else:
    from backports.zstd import CompressionParameter, ZstdCompressor, ZstdError, ZstdFile

#: A layer is packed once and unpacked by everyone who pulls it. From 12 on, TensorFlow's libraries
#: take several times as long to pack and come out hardly smaller.
LEVEL = 9
#: More threads than this take memory (8 MB each, and more at higher levels) for little.
_MOST_THREADS = 8


def packer() -> ZstdCompressor:
    """Return what packs one stream, with a checksum, on all processors."""
    return ZstdCompressor(
        options={
            CompressionParameter.compression_level: LEVEL,
            CompressionParameter.checksum_flag: 1,
            CompressionParameter.nb_workers: min(os.cpu_count() or 1, _MOST_THREADS),
        }
    )


@contextmanager
def unpacked(packed: IO[bytes]) -> Iterator[IO[bytes]]:
    """Give a packed stream as a file that reads what was packed.

    Raises:
        ValueError: in the block: it is damaged.
        EOFError: in the block: it ends too early.

    """
    try:
        with ZstdFile(packed) as file:
            yield cast("IO[bytes]", file)
    except ZstdError as error:
        raise ValueError(str(error)) from error
