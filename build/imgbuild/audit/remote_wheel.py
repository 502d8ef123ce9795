"""Members of a wheel on a server: whole with their checksum, or only the beginning."""

import struct
import zlib
from collections.abc import Callable

from imgbuild.audit.failure import ReadError
from imgbuild.audit.ranges import RangeReader
from imgbuild.audit.zip_directory import METHODS, Directory, Member, read_directory

#: libtensorflow_framework.so has 38 MB.
MEMBER_LIMIT = 128 << 20
#: _pywrap_tensorflow_internal.so: 3 MB are needed, which become 25.
PREFIX_PACKED, PREFIX_LIMIT = 16 << 20, 160 << 20
_PIECE = 1 << 20
_HEADER_SIZE = 30
#: The name and extra fields before a member's content; wheels have a few dozen bytes.
_SLACK = 1024
_DEFLATED = 8


class RemoteWheel:
    """A wheel at a URL, read by ranges."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self.directory: Directory = read_directory(reader)

    @property
    def reader(self) -> RangeReader:
        """The file that it is."""
        return self._reader

    def find(self, ends: tuple[str, ...]) -> Member | None:
        """Return the first member whose path ends in one of ``ends``, in their order."""
        for end in ends:
            for name, member in self.directory.members.items():
                if f"/{name}".endswith(end):
                    return member
        return None

    def read(self, member: Member) -> bytes:
        """Return a member whole.

        Raises:
            ReadError: it is not what the directory says: size, checksum, method.

        """
        if member.size > MEMBER_LIMIT or member.method not in METHODS:
            raise self._lies(member, f"claims {member.size} bytes by method {member.method}")
        content = self._unpacked(member, self._packed(member))
        if len(content) != member.size or zlib.crc32(content) != member.crc:
            raise self._lies(member, "differs in size or checksum from what the directory says")
        return content

    def read_until(self, member: Member, enough: Callable[[bytes], bool]) -> bytes:
        """Return a member's beginning, some MB at a time until it is ``enough``, or all of it.

        Raises:
            ReadError: it is not enough within the limits, or cannot be unpacked.

        """
        begin = self._content_start(member)
        unpack = zlib.decompressobj(-zlib.MAX_WBITS)
        content = bytearray()
        for piece in self._reader.chunks(begin, min(member.packed, PREFIX_PACKED), _PIECE):
            try:
                content += unpack.decompress(piece, PREFIX_LIMIT - len(content))
            except zlib.error as error:
                raise self._lies(member, f"cannot be unpacked ({error})") from error
            if unpack.eof or enough(bytes(content)):
                return bytes(content)
            if unpack.unconsumed_tail:
                break
        raise self._lies(member, "does not hold what is looked for in its beginning")

    def _packed(self, member: Member) -> bytes:
        """Return a member's bytes as they are in the archive, in one request."""
        name = len(member.name.encode())
        room = self.directory.start - member.offset
        length = min(_HEADER_SIZE + name + _SLACK + member.packed, room)
        content = self._reader.read(member.offset, length)
        begin = self._header_size(member, content)
        if begin + member.packed > length:
            raise self._lies(member, "has a header that does not leave room for its content")
        return content[begin : begin + member.packed]

    def _content_start(self, member: Member) -> int:
        header = self._reader.read(member.offset, _HEADER_SIZE)
        if member.method != _DEFLATED:
            raise self._lies(member, "is not deflated")
        return member.offset + self._header_size(member, header)

    def _header_size(self, member: Member, header: bytes) -> int:
        signature, name, extra = struct.unpack_from("<4s22xHH", header)
        if signature != b"PK\x03\x04":
            raise self._lies(member, "does not begin with a member's header")
        return int(_HEADER_SIZE + name + extra)

    def _unpacked(self, member: Member, packed: bytes) -> bytes:
        if member.method != _DEFLATED:
            return packed
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, member.size + 1)
        except zlib.error as error:
            raise self._lies(member, f"cannot be unpacked ({error})") from error

    def _lies(self, member: Member, what: str) -> ReadError:
        return ReadError(
            f"{self._reader.name}: member {member.name} {what}. The archive is damaged, or made to "
            "mislead."
        )
