"""ELF files: stripped, and finding their libraries beside themselves, not at a fixed place."""

import re
import shutil
import subprocess
from pathlib import Path

from imgbuild.errors import MachineError

_MAGIC = b"\x7fELF"
_PACKAGES = {"strip": "binutils", "patchelf": "patchelf"}


def is_elf(path: Path) -> bool:
    """Whether ``path`` is a program or library in ELF."""
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def require_elf_tools() -> None:
    """See that ``strip`` and ``patchelf`` are there.

    Raises:
        MachineError: one is missing; with the command that installs it.

    """
    missing = [package for tool, package in _PACKAGES.items() if not shutil.which(tool)]
    if missing:
        raise MachineError(
            f"Making an interpreter relocatable needs {' and '.join(missing)}, which this machine "
            f"lacks. Install with `sudo apt-get install -y {' '.join(missing)}`."
        )


def strip(files: list[Path]) -> None:
    """Remove debug information and symbol tables: nine tenths of libpython."""
    _run(["strip", "--strip-all"], files)


def set_search_path(files: list[Path], search_path: str) -> None:
    """Let ``files`` look for their libraries in ``search_path``, and forget where they looked.

    patchelf writes over the old path in the string table, so that it is not left behind.
    """
    _run(["patchelf", "--set-rpath", search_path], files)


def replace_in_strings(content: bytes, old: str, new: str) -> bytes:
    r"""Return ELF ``content`` with the folder ``old`` inside C strings replaced, at equal length.

    No byte after a replaced name moves, because linkers merge a string with the end of a longer
    one (``SHF_MERGE``): in CPython the version, "3.6.15", is the end of "/home/me/3.6.15". So

    - inside a longer string the new name is filled up with slashes: ``/opt/python////lib``;
    - at the end of a string it ends early, and the last part of the old name stays in place behind
      the end, where only the merged string's reader sees it: ``/opt/python\0\0\0\03.6.15``.

    A ``new`` that is too long becomes ``/``: CPython only falls back on its compiled-in prefix
    when it does not find its library from where it was started.
    """
    old_bytes, new_bytes = old.encode(), new.encode()
    if len(new_bytes) >= len(old_bytes):
        new_bytes = b"/"
    tail = b"\0" + old_bytes.rpartition(b"/")[2]
    if len(new_bytes) + len(tail) > len(old_bytes):
        new_bytes = b"/"[: len(old_bytes) - len(tail)]
    ended = new_bytes + tail.rjust(len(old_bytes) - len(new_bytes), b"\0")
    inside = new_bytes.ljust(len(old_bytes), b"/")
    content = content.replace(old_bytes + b"\0", ended + b"\0")
    # What follows must end the name: "/home/me/3.6.1" is not a part of "/home/me/3.6.15".
    return re.sub(re.escape(old_bytes) + rb"(?![\w.-])", lambda _: inside, content)


def _run(command: list[str], files: list[Path]) -> None:
    if not files:
        return
    whole = [*command, *(str(path) for path in files)]
    result = subprocess.run(whole, capture_output=True, text=True, check=False)
    if result.returncode:
        tool = command[0]
        said = result.stderr.strip().rpartition("\n")[2]
        raise MachineError(
            f"{tool} failed on the files of an interpreter, saying: {said}. See that "
            f"`{tool} --version` works; `sudo apt-get install --reinstall -y {_PACKAGES[tool]}` "
            "mends a broken one."
        )
