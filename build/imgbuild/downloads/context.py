"""Fetched files as a named build context: one flat folder of hard links into the store."""

import functools
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from imgbuild.downloads.download import Download, content_digest, file_sha256
from imgbuild.downloads.many import fetch_all
from imgbuild.downloads.progress import SILENCE, Progress
from imgbuild.downloads.sites import Sites
from imgbuild.downloads.store import FILE_TIME, stored_path
from imgbuild.errors import InputError
from imgbuild.files import stored_folder


def downloads_context(
    downloads: Iterable[Download], cache: Path, sites: Sites, progress: Progress = SILENCE
) -> Path:
    """Return a folder of ``cache`` that holds the downloads under their file names, nothing else.

    Its name is a digest of what is in it. Files that are missing are fetched into
    ``cache/downloads``.

    Raises:
        InputError: two downloads have one name and different content.
        CheckFailedError: a file is another one than its sha256 says.
        MachineError: a file cannot be had, or the cache cannot be written.

    """
    wanted = _by_name(downloads)
    files = wanted.values()

    def make(folder: Path) -> None:
        for download in wanted.values():
            _drop_damaged(download, cache / "downloads", progress)
        stored = fetch_all(wanted.values(), cache / "downloads", sites, progress)
        for download, path in stored.items():
            link_or_copy(path, folder / download.file_name)
        os.utime(folder, (FILE_TIME, FILE_TIME))

    def is_whole(folder: Path) -> bool:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else None
        return names == {*wanted} and all(is_right(one, folder / one.file_name) for one in files)

    digest = content_digest(wanted.values())
    return stored_folder(cache / "contexts" / f"downloads-{digest[:16]}", make, is_whole)


def is_right(download: Download, path: Path) -> bool:
    """Return whether a file is what its sha256 says; it is read once a process."""
    status = path.stat()
    return _sha256(path, status.st_ino, status.st_size, status.st_mtime_ns) == download.sha256


@functools.cache
def _sha256(path: Path, *_state: int) -> str:
    return file_sha256(path)


def _drop_damaged(download: Download, store: Path, progress: Progress) -> None:
    """Throw a file of the store away that is not what its name says, so that it is fetched."""
    path = stored_path(store, download.sha256)
    if path.is_file() and not is_right(download, path):
        progress.damaged(download)
        path.unlink()


def link_or_copy(source: Path, target: Path) -> None:
    """Give a stored file another name; copied where a hard link cannot be."""
    try:
        target.hardlink_to(source)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)


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
