"""The directory of a zip archive on a server, believed only as far as it fits the file."""

import struct
from dataclasses import dataclass

from imgbuild.audit.failure import ReadError
from imgbuild.audit.ranges import RangeReader

_END = b"PK\x05\x06"
_ENTRY = b"PK\x01\x02"
_FILE = b"PK\x03\x04"
_END_SIZE = 22
_ENTRY_SIZE = 46
#: The end record and the longest comment that may follow it.
_TAIL = _END_SIZE + 0xFFFF
#: TensorFlow's have 7,500 members and 800 KB.
DIRECTORY_LIMIT = 16 << 20
_ENCRYPTED = 1
#: Stored as they are, or deflated: what wheels may use.
METHODS = (0, 8)


@dataclass(frozen=True)
class Member:
    """A file in the archive. Sizes and the offset of its header are in bytes."""

    name: str
    method: int
    crc: int
    packed: int
    size: int
    offset: int


@dataclass(frozen=True)
class Directory:
    """The members by name, and where in the file the directory begins."""

    members: dict[str, Member]
    start: int


def read_directory(reader: RangeReader) -> Directory:
    """Return the archive's members.

    Raises:
        ReadError: it is no zip archive, or its directory contradicts itself or the file's size.

    """
    if reader.head != _FILE:
        raise ReadError(
            f"{reader.name} is no zip archive: it begins with {reader.head!r}. Something else is "
            "served in place of the wheel."
        )
    tail_size = min(_TAIL, reader.size)
    tail = reader.read(reader.size - tail_size, tail_size)
    count, size, start = _end_record(reader, tail)
    tail_start = reader.size - tail_size
    if start >= tail_start:
        content = tail[start - tail_start : start - tail_start + size]
    else:
        content = reader.read(start, size)
    return Directory(_members(reader, content, count, start), start)


def _end_record(reader: RangeReader, tail: bytes) -> tuple[int, int, int]:
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        raise ReadError(f"{reader.name} is no zip archive: it has no directory at its end.")
    count, size, start = struct.unpack_from("<10xHII", tail, at)
    room = reader.size - len(tail) + at
    if start + size > room or size > DIRECTORY_LIMIT or size < count * _ENTRY_SIZE:
        raise ReadError(
            f"{reader.name}: its directory of {count} members claims {size} bytes from {start}, "
            f"and {room} precede its end. The archive is damaged, or made to mislead."
        )
    return count, size, start


def _members(reader: RangeReader, content: bytes, count: int, start: int) -> dict[str, Member]:
    members: dict[str, Member] = {}
    at = 0
    try:
        for _ in range(count):
            member, at = _member(content, at)
            _check(reader, member, start)
            members[member.name] = member
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ReadError(
            f"{reader.name}: entry {len(members) + 1} of its directory is damaged."
        ) from error
    if len(members) != count:
        raise ReadError(f"{reader.name}: its directory names a member twice.")
    return members


def _member(content: bytes, at: int) -> tuple[Member, int]:
    """Return the entry at ``at``, and where the next one is."""
    signature, flags, method, crc, packed, size, name, extra, comment, offset = struct.unpack_from(
        "<4s4xHH4xIIIHHH8xI", content, at
    )
    if signature != _ENTRY or flags & _ENCRYPTED:
        raise ValueError(signature)
    begin = at + _ENTRY_SIZE
    text = content[begin : begin + name].decode("utf-8")
    return Member(text, method, crc, packed, size, offset), begin + name + extra + comment


def _check(reader: RangeReader, member: Member, start: int) -> None:
    if member.offset + 30 + member.packed > start:
        raise ReadError(
            f"{reader.name}: member {member.name} claims {member.packed} bytes from "
            f"{member.offset}, beyond the end of the members at {start}. The archive is damaged, "
            "or made to mislead."
        )
