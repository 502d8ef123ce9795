"""Fetched files as a named build context: one flat folder of hard links into the store."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from imgbuild.downloads.download import Download, content_digest
from imgbuild.downloads.many import fetch_all
from imgbuild.downloads.progress import SILENCE, Progress
from imgbuild.downloads.sites import Sites
from imgbuild.downloads.store import FILE_TIME
from imgbuild.errors import InputError
from imgbuild.inputs.stored_folder import stored_folder


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

    def make(folder: Path) -> None:
        stored = fetch_all(wanted.values(), cache / "downloads", sites, progress)
        for download, path in stored.items():
            link_or_copy(path, folder / download.file_name)
        os.utime(folder, (FILE_TIME, FILE_TIME))

    def is_whole(folder: Path) -> bool:
        return folder.is_dir() and {path.name for path in folder.iterdir()} == {*wanted}

    digest = content_digest(wanted.values())
    return stored_folder(cache / "contexts" / f"downloads-{digest[:16]}", make, is_whole)


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
