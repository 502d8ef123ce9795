"""Files appear whole or not at all."""

import os
import tempfile
from pathlib import Path

from imgbuild.errors import MachineError


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` in one step; a kill in between leaves the old file.

    Raises:
        MachineError: the folder cannot be written, or the disk is full.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
    except OSError as error:
        raise MachineError(
            f"Cannot write {path}: {error.strerror}. Nothing was changed; check the folder's "
            "permissions and the free disk space."
        ) from error


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
