"""Unpack untrusted archives up to a limit, because a few kB may unpack to gigabytes."""

import bz2
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

#: Compression methods that zipfile unpacks in pieces of the size that is read. It unpacks a whole
#: block of bzip2 or LZMA at once, and 4 kB of them can hold gigabytes.
_IN_PIECES = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}

#: Limit for one file, in bytes. tarfile seeks in a stream by reading, even beyond its end.
_FILE_LIMIT = 1 << 36
#: Limit for the extended headers of a file, in bytes. Source: Go's archive/tar, with which engines
#: read layers.
_HEADER_LIMIT = 1 << 20
_HEADERS = {
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
}

#: Errors of zipfile for a damaged archive; an encrypted archive raises RuntimeError.
DAMAGED_ZIP = (EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def open_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo) -> IO[bytes]:
    """Open a file in a zip archive for reading in pieces.

    Callers must read with a size. Without one, zipfile unpacks the whole file, even if its header
    understates the size.

    ValueError: the file is compressed by another method than deflate.
    """
    member = archive.getinfo(name) if isinstance(name, str) else name
    if member.compress_type not in _IN_PIECES:
        raise ValueError(f"{member.filename} is compressed by another method than deflate")
    return archive.open(member)


def read_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo, limit: int) -> bytes:
    """Return the content of a file in a zip archive.

    ValueError: the file has more than ``limit`` bytes, or `open_member` refuses it.
    """
    with open_member(archive, name) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        path = name if isinstance(name, str) else name.filename
        raise ValueError(f"{path} unpacks to more than {limit:,} bytes")
    return content


def unpack_bz2(packed: bytes, limit: int) -> bytes:
    """Unpack bzip2 data.

    ValueError: the data unpacks to more than ``limit`` bytes.
    EOFError, OSError: the data is damaged.
    """
    with bz2.open(io.BytesIO(packed)) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it unpacks to more than {limit:,} bytes")
    return content


def stream_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of a tar archive, which is read once from start to end.

    tarfile would otherwise keep every entry in memory, with extended headers of up to 1 MiB.
    """
    for member in archive:
        archive.members.clear()  # type: ignore[attr-defined]  # typeshed lacks it
        yield member


class LimitedMember(tarfile.TarInfo):
    """A tar entry with the same limits that engines have for files in layers."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Read one header.

        tarfile reads extended headers of any size into memory. A sparse file of a few bytes can
        claim any size, and engines do not write sparse files.

        ReadError: a size is beyond the limit, or the file is sparse.
        """
        limit = _HEADER_LIMIT if self.type in _HEADERS else _FILE_LIMIT
        if not 0 <= self.size <= limit:
            raise tarfile.ReadError("a header has a wrong size")
        # An extended header before the file may give another size.
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        if member.issparse() or not 0 <= member.size <= _FILE_LIMIT:
            raise tarfile.ReadError("a file is sparse, or has a wrong size")
        return member
