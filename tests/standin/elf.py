"""ELF files of the stand-ins: stripped, with other search paths and folder names."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_elf(path: Path) -> bool:
    """Whether ``path`` is a program or library in ELF."""
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def strip(files: list[Path]) -> None:
    """Remove debug information and symbol tables."""
    subprocess.run(["strip", "--strip-all", *files], check=True)


def set_search_path(files: list[Path], search_path: str) -> None:
    """Let ``files`` look for their libraries in ``search_path``."""
    subprocess.run(["patchelf", "--set-rpath", search_path, *files], check=True)


def replace_in_strings(content: bytes, old: str, new: str) -> bytes:
    r"""Return ELF ``content`` with the folder ``old`` inside C strings replaced, at equal length.

    No byte after a replaced name moves, because linkers merge a string with the end of a longer
    one (``SHF_MERGE``). Inside a longer string the new name is filled up with slashes,
    ``/opt/intel////lib``; at the end of a string it ends early, and the last part of the old name
    stays behind the end, where only the merged string's reader sees it.
    """
    old_bytes, new_bytes = old.encode(), new.encode()
    tail = b"\0" + old_bytes.rpartition(b"/")[2]
    if len(new_bytes) + len(tail) > len(old_bytes):
        raise ValueError(f"{new} is too long to stand in place of {old}")
    ended = new_bytes + tail.rjust(len(old_bytes) - len(new_bytes), b"\0")
    inside = new_bytes.ljust(len(old_bytes), b"/")
    content = content.replace(old_bytes + b"\0", ended + b"\0")
    return re.sub(re.escape(old_bytes) + rb"(?![\w.-])", lambda _: inside, content)
