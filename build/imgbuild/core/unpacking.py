"""Unpack what others packed, up to a limit: a few kB may unpack to gigabytes."""

import bz2
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

#: zipfile unpacks these in pieces of the size that is read. It unpacks a whole piece of bzip2 or
#: LZMA at once, and such a piece of 4 kB holds gigabytes.
_IN_PIECES = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}

#: Limit for one file, in bytes: tarfile seeks in a stream by reading, also behind its end.
_FILE_LIMIT = 1 << 36
#: Limit for the extended headers of a file, in bytes. Source: Go's archive/tar, which engines read
#: layers with.
_HEADER_LIMIT = 1 << 20
_HEADERS = {
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
}

#: Errors of zipfile for a damaged archive; an encrypted one raises RuntimeError.
DAMAGED_ZIP = (EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def open_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo) -> IO[bytes]:
    """Open a file of an archive that is to be read in pieces.

    Read with a size: without one, zipfile unpacks a file whose header understates its size whole.

    ValueError: it is compressed by another method than deflate.
    """
    member = archive.getinfo(name) if isinstance(name, str) else name
    if member.compress_type not in _IN_PIECES:
        raise ValueError(f"{member.filename} is compressed by another method than deflate")
    return archive.open(member)


def read_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo, limit: int) -> bytes:
    """Return the content of a file of an archive.

    ValueError: it has more than ``limit`` bytes, or as `open_member`.
    """
    with open_member(archive, name) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        path = name if isinstance(name, str) else name.filename
        raise ValueError(f"{path} unpacks to more than {limit:,} bytes")
    return content


def unpack_bz2(packed: bytes, limit: int) -> bytes:
    """Return unpacked bzip2.

    ValueError: it has more than ``limit`` bytes. EOFError, OSError: it is damaged.
    """
    with bz2.open(io.BytesIO(packed)) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it unpacks to more than {limit:,} bytes")
    return content


def stream_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of an archive that is read once, from its start to its end.

    tarfile itself keeps every file that it has read, with extended headers of up to 1 MiB.
    """
    for member in archive:
        archive.members.clear()  # type: ignore[attr-defined]  # typeshed lacks it
        yield member


class LimitedMember(tarfile.TarInfo):
    """A file of a tar archive, with the limits that engines have for the files of layers."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Read one header.

        tarfile reads extended headers whole, whatever size they have. A sparse file of a few bytes
        has any size when it is read, and engines write none.

        ReadError: a size is wrong, or the file is sparse.
        """
        limit = _HEADER_LIMIT if self.type in _HEADERS else _FILE_LIMIT
        if not 0 <= self.size <= limit:
            raise tarfile.ReadError("a header has a wrong size")
        # An extended header before the file may name another size.
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        if member.issparse() or not 0 <= member.size <= _FILE_LIMIT:
            raise tarfile.ReadError("a file is sparse, or has a wrong size")
        return member
