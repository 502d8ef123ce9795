"""What others packed is unpacked up to a limit, and in little memory."""

import bz2
import io
import zipfile

import pytest

from imgbuild.core.unpacking import read_member, unpack_bz2
from support.bombs import BZ2, UNPACKED, memory_below, understated, zip_file

LIMIT = 1 << 20
ZEROS = {"a/x": bytes(UNPACKED)}


def read(archive: bytes, limit: int = LIMIT) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return read_member(opened, "a/x", limit)


@pytest.mark.parametrize("size", [0, LIMIT - 1, LIMIT])
def test_read_member_up_to_the_limit(size: int) -> None:
    assert read(zip_file({"a/x": b"1" * size})) == b"1" * size
    assert unpack_bz2(bz2.compress(b"1" * size), LIMIT) == b"1" * size


@pytest.mark.parametrize("size", [LIMIT + 1, UNPACKED])
def test_read_member_above_the_limit(size: int) -> None:
    archive = zip_file({"a/x": bytes(size)})
    with memory_below(4 * LIMIT), pytest.raises(ValueError, match=r"a/x .* 1,048,576 bytes"):
        read(archive)


def test_read_member_of_an_understated_size() -> None:
    """Python's zipfile unpacks such a file whole, before it looks how much it may return."""
    archive = understated(zip_file(ZEROS), "a/x")
    with memory_below(4 * LIMIT), pytest.raises(zipfile.BadZipFile):
        read(archive)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_read_member_of_another_method(method: int) -> None:
    """Python's zipfile unpacks each piece of such a file whole."""
    archive = zip_file({"a/x": bytes(8 * LIMIT)}, method)
    with memory_below(4 * LIMIT), pytest.raises(ValueError, match="a/x is compressed by another"):
        read(archive)


def test_unpack_bz2_above_the_limit() -> None:
    for packed in (BZ2, bz2.compress(bytes(LIMIT)) + bz2.compress(b"1")):
        with memory_below(4 * LIMIT), pytest.raises(ValueError, match="it unpacks to more"):
            unpack_bz2(packed, LIMIT)


def test_unpack_bz2_of_several_streams() -> None:
    assert unpack_bz2(bz2.compress(b"ab") + bz2.compress(b"c"), LIMIT) == b"abc"
    with pytest.raises(EOFError):
        unpack_bz2(BZ2[:-5], 2 * UNPACKED)
