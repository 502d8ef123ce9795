"""What is to be fetched: a file by its address, trusted by its sha256."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from imgbuild.scalars import Sha256

#: A name in one folder: also what apt (``1%3a2.0~rc1``) and the Python index call their files.
StoredName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+%~!:@-]*$")]


@dataclass(frozen=True)
class Download:
    """One file. ``size`` is in bytes, where it is known beforehand.

    Raises:
        ValueError: the name is a path, or the sha256 is none.

    """

    file_name: StoredName
    url: str
    sha256: Sha256
    size: int | None = None


def substituted(download: Download, substitutes: Mapping[str, str]) -> Download:
    """Return ``download`` with the sha256 that the settings give in place of the matrix's."""
    other = substitutes.get(download.file_name)
    return replace(download, sha256=other, size=None) if other else download


def content_digest(downloads: Iterable[Download]) -> str:
    """Return the sha256, in hexadecimal, over the names and contents; addresses do not matter."""
    parts = sorted((download.file_name, download.sha256) for download in downloads)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
