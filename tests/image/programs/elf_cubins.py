"""Print which GPUs the libraries of Python packages have code for, by file: machine code and PTX.

Arguments: the packages' folders below site-packages, as shell patterns. Read from the section
.nv_fatbin, into which NVIDIA's compiler puts containers, one after the other, of entries: a kind
(1: PTX, 2: machine code), the length of the header and of what follows it, and the compute
capability. The layout is NVIDIA's fatbinary.h, and what cuobjdump lists.
"""

import json
import os
import struct
import sys
import sysconfig

from elf_file import opened
from elf_needs import is_elf, libraries

CONTAINER = struct.Struct("<IHHQ")  # magic version header length
ENTRY = struct.Struct("<HHIQ12xI")  # kind version header length capability
MAGIC = 0xBA55ED50
KINDS = {1: "ptx", 2: "native"}


def entries(data):
    """Give kind and capability of each entry of a section; containers are aligned to 8 bytes."""
    at = 0
    while at + CONTAINER.size <= len(data):
        magic, _, header, length = CONTAINER.unpack_from(data, at)
        if magic != MAGIC:
            at += 8
            continue
        entry, end = at + header, at + header + length
        while entry + ENTRY.size <= end:
            kind, _, before, size, capability = ENTRY.unpack_from(data, entry)
            yield KINDS.get(kind, str(kind)), capability
            entry += before + size
        at = end


def code(data):
    """Return the capabilities by kind, as in "9.0"."""
    found = sorted(set(entries(data)), key=lambda one: one[1])
    return {
        kind: ["{}.{}".format(*divmod(number, 10)) for is_of, number in found if is_of == kind]
        for kind in KINDS.values()
    }


def cubins(site, patterns):
    found = {}
    for path in libraries(site, patterns):
        if os.path.isfile(path) and is_elf(path):
            with opened(path) as elf:
                data = elf.section(b".nv_fatbin")
            if data:
                found[os.path.relpath(path, site)] = code(data)
    return found


if __name__ == "__main__":
    print(json.dumps(cubins(sysconfig.get_paths()["platlib"], sys.argv[1:])))
