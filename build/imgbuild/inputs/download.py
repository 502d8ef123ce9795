"""Files by sha256, kept in a store and put into named build contexts."""

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.files import (
    FILE_TIME,
    ContentStore,
    file_sha256,
    json_sha256,
    link_or_copy,
    stored_folder,
)
from imgbuild.inputs.download_progress import DownloadProgress
from imgbuild.scalars import Sha256
from imgbuild.settings import Sites

#: A name in one folder: also what apt (``1%3a2.0~rc1``) and the Python index call their files.
StoredName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+%~!:@-]*$")]


@dataclass(frozen=True)
class Download:
    """One file. ``size`` is in bytes, where it is known beforehand.

    Raises:
        ValueError: the name is a path, or the sha256 is not one.

    """

    file_name: StoredName
    url: str
    sha256: Sha256
    size: int | None = None


class WrongContentError(CheckFailedError):
    """The file that came has another sha256 than ``download``."""

    def __init__(self, message: str, download: Download) -> None:
        super().__init__(message)
        self.download = download


class NotFetchedError(MachineError):
    """``download`` cannot be had from here."""

    def __init__(self, message: str, download: Download) -> None:
        super().__init__(message)
        self.download = download


def substituted(download: Download, substitutes: Mapping[str, str]) -> Download:
    """Return ``download`` with the sha256 that the settings give in place of the matrix's."""
    other = substitutes.get(download.file_name)
    return replace(download, sha256=other, size=None) if other else download


def content_digest(downloads: Iterable[Download]) -> str:
    """Return the sha256, in hexadecimal, over the names and contents; addresses do not matter."""
    return json_sha256(sorted((download.file_name, download.sha256) for download in downloads))


def downloads_context(
    downloads: Iterable[Download],
    cache: Path,
    sites: Sites,
    progress: DownloadProgress | None = None,
) -> Path:
    """Return a folder of ``cache`` that holds the downloads under their file names, nothing else.

    Its name is a digest of what is in it. Files that are missing are fetched into
    ``cache/downloads``.

    Raises:
        InputError: two downloads have one name and different content.
        CheckFailedError: a file has another sha256.
        MachineError: a file cannot be had, or the cache cannot be written.

    """
    files = _by_name(downloads)
    store, shown = ContentStore(cache / "downloads"), progress or DownloadProgress()

    def make(folder: Path) -> None:
        for download in files.values():
            path = store.path(download.sha256)
            if path.is_file() and not _is_right(download, path):
                shown.damaged(download.file_name)
                path.unlink()
        stored = fetch_all(files.values(), store, sites, shown)
        for download, path in stored.items():
            link_or_copy(path, folder / download.file_name)
        os.utime(folder, (FILE_TIME, FILE_TIME))

    def is_whole(folder: Path) -> bool:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else None
        return names == {*files} and all(_is_right(f, folder / n) for n, f in files.items())

    digest = content_digest(files.values())
    return stored_folder(cache / "contexts" / f"downloads-{digest[:16]}", make, is_whole)


def fetch_all(
    downloads: Iterable[Download],
    store: ContentStore,
    sites: Sites,
    progress: DownloadProgress | None = None,
) -> Mapping[Download, Path]:
    """Return where each file is in ``store``, fetched where it is missing.

    The first fault stops the others; what has come of a file stays as its ``.part``, which the next
    call continues. Another process that fetches the same file is waited for.

    Raises:
        CheckFailedError: a file has another sha256.
        MachineError: one cannot be had, or the store cannot be written.

    """
    files = list(dict.fromkeys(downloads))
    missing = [file for file in files if not store.find(file.sha256, file.size)]
    if missing:
        from imgbuild.inputs.transfer import transfer  # noqa: PLC0415 - brings requests

        transfer(missing, store, sites, progress or DownloadProgress())
    return {file: store.path(file.sha256) for file in files}


def _is_right(download: Download, path: Path) -> bool:
    """Return whether a file has its sha256; it is read once a process."""
    status = path.stat()
    return _sha256(path, status.st_ino, status.st_size, status.st_mtime_ns) == download.sha256


@functools.cache
def _sha256(path: Path, *_state: int) -> str:
    return file_sha256(path)


def _by_name(downloads: Iterable[Download]) -> dict[str, Download]:
    found: dict[str, Download] = {}
    for download in downloads:
        other = found.setdefault(download.file_name, download)
        if other.sha256 != download.sha256:
            raise InputError(
                f"Two downloads are called {download.file_name} and differ: {other.url} and "
                f"{download.url}. Give one of them another file name."
            )
    return found
