"""ELF files of a dynamic section and symbols, and nothing else, for tests to write."""

import struct

NEEDED, RPATH, RUNPATH = 1, 15, 29
SECTION = struct.Struct("<IIQQQQIIQQ")


def elf(
    *tags: tuple[int, str], undefined: tuple[str, ...] = (), defined: tuple[str, ...] = ()
) -> bytes:
    """Return a file with these entries of its dynamic section, and its symbols."""
    strings, at = b"\0", {}
    for name in (*(text for _, text in tags), *undefined, *defined):
        at[name] = len(strings)
        strings += name.encode() + b"\0"
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    symbols += b"".join(struct.pack("<IBBHQQ", at[n], 18, 0, 0, 0, 0) for n in undefined)
    symbols += b"".join(struct.pack("<IBBHQQ", at[n], 18, 0, 7, 64, 8) for n in defined)
    dynamic = b"".join(struct.pack("<qQ", tag, at[text]) for tag, text in tags)
    headers, body = b"", b""
    for kind, content, size in ((3, strings, 0), (11, symbols, 24), (6, dynamic, 16)):
        headers += SECTION.pack(0, kind, 0, 0, 64 + len(body), len(content), 0, 0, 8, size)
        body += content
    head = struct.pack("<6s34xQ10xHHH", b"\x7fELF\x02\x01", 64 + len(body), 64, 3, 0)
    return head + body + headers
