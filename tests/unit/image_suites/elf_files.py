"""ELF files of a dynamic section, and nothing else, for tests to write."""

import struct

NEEDED, RPATH, RUNPATH = 1, 15, 29
SECTION = struct.Struct("<IIQQQQIIQQ")


def elf(*tags: tuple[int, str]) -> bytes:
    """Return a file with these entries of its dynamic section."""
    strings, dynamic = b"\0", b""
    for tag, text in tags:
        dynamic += struct.pack("<qQ", tag, len(strings))
        strings += text.encode() + b"\0"
    headers, body = b"", b""
    for kind, content, size in ((3, strings, 0), (6, dynamic, 16)):
        headers += SECTION.pack(0, kind, 0, 0, 64 + len(body), len(content), 0, 0, 8, size)
        body += content
    head = struct.pack("<6s34xQ10xHHH", b"\x7fELF\x02\x01", 64 + len(body), 64, 2, 0)
    return head + body + headers
