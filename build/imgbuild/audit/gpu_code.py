"""The GPU code of a library: which compute capabilities its kernels are compiled for.

Kernels lie in fat binaries, one entry a capability: its kind (1: PTX, 2: machine code), a version,
the size of its header, and 24 bytes on the capability as a number, 70 for 7.0. Source: fatbinary.h
and the output of cuobjdump for the same wheels.
"""

import re
from typing import IO

_ENTRY = re.compile(rb"([\x01\x02])\0\x01\x01[\x40-\xa0]\0\0\0.{20}([\x1e-\x7f])\0\0\0", re.DOTALL)
#: An entry's first bytes may be the last ones of a piece.
_ENTRY_BYTES = 32
_PIECE = 4 << 20


def compute_capabilities(library: IO[bytes]) -> tuple[str, ...]:
    """Return them as build_info.py does: ``sm_70``, or ``compute_70`` if there is PTX, too."""
    native, ptx, end = set[int](), set[int](), b""
    while piece := library.read(_PIECE):
        for entry in _ENTRY.finditer(end + piece):
            (ptx if entry[1] == b"\1" else native).add(entry[2][0])
        end = piece[1 - _ENTRY_BYTES :]
    return tuple(f"{'compute' if one in ptx else 'sm'}_{one}" for one in sorted(native | ptx))
