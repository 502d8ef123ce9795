"""What a 64-bit ELF file asks of the loader: libraries, where to look for them, symbols.

Read from the section headers, with nothing but the standard library: images have no binutils. The
files are mapped, since those of TensorFlow have up to a gigabyte.
"""

import contextlib
import mmap
import struct

SECTION = struct.Struct("<IIQQQQIIQQ")  # name type flags addr offset size link info align entsize
SYMBOL = struct.Struct("<IBBHQQ")  # name info other section value size
DYNAMIC = struct.Struct("<qQ")  # tag value
SHT_DYNAMIC, SHT_DYNSYM = 6, 11
DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 14, 15, 29
UNDEFINED = 0


@contextlib.contextmanager
def opened(path):
    """Give the file for as long as the `with` block lasts; ValueError: it is none of the kind."""
    with open(path, "rb") as stream:
        with contextlib.closing(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) as data:
            yield Elf(path, data)


class Elf:
    """One file."""

    def __init__(self, path, data):
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("{}: not a 64-bit little-endian ELF file".format(path))
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self.sections = [SECTION.unpack_from(data, start + n * size) for n in range(count)]
        if not self.sections:
            raise ValueError("{}: no section headers".format(path))

    def needed(self):
        """Return the sonames of DT_NEEDED, in order."""
        return self._tagged(DT_NEEDED)

    def rpath(self):
        """Return the texts of DT_RPATH: folders with colons between them."""
        return self._tagged(DT_RPATH)

    def runpath(self):
        """Return the texts of DT_RUNPATH, which the loader prefers."""
        return self._tagged(DT_RUNPATH)

    def soname(self):
        """Return the name by which the loader knows the library, in a list; empty if it has none."""
        return self._tagged(DT_SONAME)

    def undefined(self):
        """Return the names of the dynamic symbols that other libraries must define."""
        return [
            self._text(section, symbol[0])
            for section in self._of_type(SHT_DYNSYM)
            for symbol in self._entries(section, SYMBOL)
            if symbol[3] == UNDEFINED and symbol[0]
        ]

    def defined(self):
        """Return the names of the dynamic symbols that this file has for others."""
        return [
            self._text(section, symbol[0])
            for section in self._of_type(SHT_DYNSYM)
            for symbol in self._entries(section, SYMBOL)
            if symbol[3] != UNDEFINED and symbol[0]
        ]

    def section(self, name):
        """Return the bytes of a section; none if there is no such section."""
        (names,) = struct.unpack_from("<H", self.data, 62)
        begin = self.sections[names][4]
        for section in self.sections:
            if self.data[begin + section[0] :][: len(name) + 1] == name + b"\0":
                return self.data[section[4] : section[4] + section[5]]
        return b""

    def _tagged(self, wanted):
        return [
            self._text(section, value)
            for section in self._of_type(SHT_DYNAMIC)
            for tag, value in self._entries(section, DYNAMIC)
            if tag == wanted
        ]

    def _of_type(self, kind):
        return [section for section in self.sections if section[1] == kind]

    def _entries(self, section, shape):
        begin, size = section[4], section[5]
        return shape.iter_unpack(self.data[begin : begin + size])

    def _text(self, section, offset):
        """Return the string at `offset` of the string table that belongs to `section`."""
        begin = self.sections[section[6]][4] + offset
        return self.data[begin : self.data.find(b"\0", begin)].decode()
