"""The paths of this machine that are written inside an interpreter's files."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from imgbuild.errors import CheckFailedError
from imgbuild.inputs.elf import is_elf, replace_in_strings

#: Prefixes that every machine has. The standard library itself speaks of them (mimetypes, site),
#: so their names say nothing about this machine and may stay.
COMMON_PREFIXES = frozenset({"/usr", "/usr/local"})


def replace_paths(tree: Path, names: Mapping[str, str]) -> None:
    """Put ``names[old]`` for each folder ``old``, in the text and the binary files of ``tree``.

    Common prefixes are only replaced where the build recorded its own (see :func:`_is_record`).
    """
    for path in _files(tree):
        before = path.read_bytes()
        after = _replaced(path, before, names)
        if after != before:
            path.write_bytes(after)


def check_no_paths(tree: Path, names: Mapping[str, str]) -> None:
    """See that none of the folders in ``names`` is left in any file or link of ``tree``.

    Raises:
        CheckFailedError: some are; with the first files.

    """
    needles = [os.fsencode(name) for name in names if name not in COMMON_PREFIXES]
    found = [path for path in _entries(tree) if any(needle in _bytes(path) for needle in needles)]
    if found:
        first = ", ".join(path.relative_to(tree).as_posix() for path in found[:5])
        raise CheckFailedError(
            f"A relocated interpreter still names folders of this machine ({', '.join(names)}) in "
            f"{len(found)} files: {first}. An image must not depend on them. Take a prefix that "
            "was built in one go (`pyenv install --force`), or compile from source: remove the "
            "cpython entry from imgbuild.local.yaml."
        )


def _replaced(path: Path, content: bytes, names: Mapping[str, str]) -> bytes:
    elf = is_elf(path)
    # The longest first, so that a folder inside another is not taken for the outer one.
    for old, new in sorted(names.items(), key=lambda item: -len(item[0])):
        if old in COMMON_PREFIXES and (elf or not _is_record(path)):
            continue
        if os.fsencode(old) in content:
            replace = replace_in_strings if elf else _replace_in_text
            content = replace(content, old, new)
    return content


def _replace_in_text(content: bytes, old: str, new: str) -> bytes:
    return content.replace(old.encode(), new.encode())


def _is_record(path: Path) -> bool:
    """Whether the build wrote its prefix into this file: scripts, pkg-config, sysconfig's two."""
    return (
        path.name.startswith("_sysconfigdata")
        or path.name in {"Makefile", "python-config.py"}
        or path.suffix == ".pc"
        or path.parent.name == "bin"
    )


def _entries(tree: Path) -> Iterator[Path]:
    return (path for path in sorted(tree.rglob("*")) if path.is_symlink() or path.is_file())


def _files(tree: Path) -> Iterator[Path]:
    return (path for path in _entries(tree) if not path.is_symlink())


def _bytes(path: Path) -> bytes:
    return os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
