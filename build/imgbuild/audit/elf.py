"""As much of an ELF library as tells what it loads and what compiled it, without running it."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_NEEDED = 1
_DYNAMIC_ENTRY, _SYMBOL = struct.Struct("<qQ"), struct.Struct("<IBBHQQ")
#: ``lea register, [rip + distance]``: how code on x86-64 takes the address of a string.
_LEA = re.compile(rb"[\x48-\x4f]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](....)", re.DOTALL)
_GLIBC = re.compile(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)")
#: A function that takes a string's address and returns is a dozen bytes, some without a size.
_SHORT = 16


class ElfError(ValueError):
    """It is no 64-bit little-endian ELF library, or its tables point outside it."""


@dataclass(frozen=True)
class Section:
    """Where a section is in memory and in the file; sizes in bytes."""

    address: int
    offset: int
    size: int


@dataclass(frozen=True)
class Symbol:
    """A symbol that the library exports: address and size of what it names."""

    name: bytes
    address: int
    size: int


class Elf:
    """A shared library as bytes."""

    def __init__(self, content: bytes) -> None:
        if content[:6] != b"\x7fELF\x02\x01":
            raise ElfError("no 64-bit little-endian ELF file")
        self._content = content
        try:
            self._sections = dict(self._read_sections())
        except (struct.error, IndexError, OverflowError) as error:
            raise ElfError("damaged section table") from error

    def _read_sections(self) -> Iterator[tuple[bytes, Section]]:
        table, size, count, names = struct.unpack_from("<40xQ10xHHH", self._content)
        rows = [
            struct.unpack_from("<I12xQQQ", self._content, table + size * row)
            for row in range(count)
        ]
        for name, address, offset, length in rows:
            yield self._string(rows[names][2] + name), Section(address, offset, length)

    def _string(self, offset: int) -> bytes:
        end = self._content.find(b"\0", offset)
        if end < 0:
            raise ElfError("a string without an end")
        return self._content[offset:end]

    def section(self, name: bytes) -> bytes:
        """Return a section's content, nothing if there is no such section."""
        found = self._sections.get(name)
        return self._content[found.offset :][: found.size] if found else b""

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The libraries without which it cannot be loaded (``DT_NEEDED``)."""
        content, names = self.section(b".dynamic"), self.section(b".dynstr")
        whole = content[: len(content) // _DYNAMIC_ENTRY.size * _DYNAMIC_ENTRY.size]
        offsets = [value for tag, value in _DYNAMIC_ENTRY.iter_unpack(whole) if tag == _NEEDED]
        return tuple(names[at : names.find(b"\0", at)].decode("ascii", "replace") for at in offsets)

    @cached_property
    def exported(self) -> tuple[Symbol, ...]:
        """The symbols that it defines for others."""
        table, names = self.section(b".dynsym"), self.section(b".dynstr")
        whole = table[: len(table) // _SYMBOL.size * _SYMBOL.size]
        return tuple(
            Symbol(names[at : names.find(b"\0", at)], address, size)
            for at, _, _, section, address, size in _SYMBOL.iter_unpack(whole)
            if section
        )

    @cached_property
    def glibc(self) -> str:
        """The newest C library version that its symbols ask for, such as ``2.17``."""
        found = {tuple(map(int, v.split(b"."))) for v in _GLIBC.findall(self.section(b".dynstr"))}
        return ".".join(map(str, max(found, default=(0,))))

    def strings_of(self, symbol: Symbol) -> tuple[str, ...]:
        """Return the constant strings whose addresses a function takes, in its order."""
        text, constants = self._sections.get(b".text"), self._sections.get(b".rodata")
        if not text or not constants:
            return ()
        start = text.offset + symbol.address - text.address
        code = self._content[start : start + (symbol.size or _SHORT)]
        targets = [
            symbol.address + match.end() + struct.unpack("<i", match[1])[0]
            for match in _LEA.finditer(code)
        ]
        places = [target - constants.address for target in targets]
        inside = [constants.offset + place for place in places if 0 <= place < constants.size]
        return tuple(self._string(place).decode("ascii", "replace") for place in inside)
