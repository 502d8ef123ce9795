"""Small files that unpack to much, and how much memory reading them takes."""

import bz2
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: The size of what is unpacked, in bytes: enough to be seen beside a limit, little enough to make.
UNPACKED = 32 << 20
#: As bzip2, of some 50 bytes.
BZ2 = bz2.compress(bytes(UNPACKED))
#: The offset of the unpacked size in an entry of the list at the end of a zip file.
_SIZE_AT = 24


def zip_file(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def replaced(archive: bytes, files: Mapping[str, bytes], method: int) -> bytes:
    """Return a zip file whose files of these names have another content, packed by ``method``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            way = method if name in files else zipfile.ZIP_DEFLATED
            new.writestr(name, files.get(name, old.read(name)), way)
    return buffer.getvalue()


def understated(archive: bytes, name: str, size: int = 10) -> bytes:
    """Return a zip file that says of one of its files that it unpacks to ``size`` bytes."""
    content = bytearray(archive)
    entry = content.rindex(name.encode()) - 46
    struct.pack_into("<I", content, entry + _SIZE_AT, size)
    return bytes(content)


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Fail if the block takes more memory at once than ``limit`` bytes."""
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < limit, f"{peak >> 20} MiB"
