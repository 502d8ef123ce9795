"""Download files by sha256 into a store, resume downloads, and put files in build contexts."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.core.files import (
    FILE_TIME,
    ContentStore,
    ensure_folder,
    file_sha256,
    json_sha256,
    link_or_copy,
)
from imgbuild.core.parallel import in_parallel
from imgbuild.core.sources import Source
from imgbuild.core.text import printable, size_text
from imgbuild.net.addresses import redact
from imgbuild.net.sites import Sites

if TYPE_CHECKING:  # a plan does not need these libraries
    from requests import Response
    from rich.progress import Progress

    from imgbuild.net.http import HttpClient

#: Known sha256 of files, by device, inode, size and time of the last change (ctime).
_KNOWN: dict[tuple[int, ...], str] = {}
_CONNECTIONS = 4
_STOP_SECONDS = 2.0  # for threads to notice that another download failed
_CHUNK = 1 << 18
#: Time limit for one chunk. A server that sends less than 2 kB/s counts as not answering.
_CHUNK_SECONDS = 120.0
_FIRST_BYTE = re.compile(r"bytes (\d+)-")
_HEAD = 1 << 16  # bytes that are searched for the title of an HTML page
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<!doctype html|<html)", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>([^<]{1,80})</title>", re.IGNORECASE)


def show_progress() -> "Progress":
    """Return a display with a progress bar for each file; log lines appear above the bars.

    If stderr is not a terminal, nothing is drawn.
    """
    from rich.console import Console  # noqa: PLC0415 - imported only for downloads
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn  # noqa: PLC0415

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())


def _say(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")


def digest_contents(files: Mapping[str, str]) -> str:
    """Return one sha256, in hexadecimal, of the names and sha256 of files."""
    return json_sha256(sorted(files.items()))


def store_content(final: Path, files: Mapping[str, str], make: Callable[[Path], None]) -> Path:
    """Return the folder ``final`` with exactly ``files``, which maps relative paths to sha256.

    If the folder is missing or has other files, ``make`` fills an empty folder that replaces it.
    """

    def is_whole(folder: Path) -> bool:
        present = {path for path in folder.rglob("*") if path.is_file()}
        if present != {folder / name for name in files}:
            return False
        return all(has_sha256(folder / name, digest) for name, digest in files.items())

    return ensure_folder(final, make, is_whole)


def prepare_downloads(
    downloads: Iterable[Source],
    cache: Path,
    sites: Sites,
    progress: "Progress",
    failed: dict[Source, ImgbuildError] | None = None,
) -> Path:
    """Return a folder in ``cache`` that has exactly the downloads, under their names.

    Missing files are downloaded to ``cache/downloads``. ``failed`` is as in `fetch_all`.

    InputError: two downloads have the same name and different content.
    CheckFailedError: a file has the wrong sha256.
    MachineError: a file cannot be downloaded, or the cache cannot be written.
    """
    files: dict[str, Source] = {}
    for download in downloads:
        other = files.setdefault(download.name, download)
        if other.sha256 != download.sha256:
            raise InputError(
                f"Two downloads have the name {download.name} and different content: {other.url} "
                f"and {download.url}. Give one of them another file name."
            )
    store = ContentStore(cache / "downloads")

    def make(folder: Path) -> None:
        for file in files.values():
            path = store.path(file.sha256)
            if path.is_file() and not has_sha256(path, file.sha256):
                _say(f"{file.name} in the cache is damaged (wrong sha256); fetching it again")
                path.unlink()
        fetch_all(files.values(), store, sites, progress, failed)
        for file in files.values():
            link_or_copy(store.path(file.sha256), folder / file.name)
        os.utime(folder, (FILE_TIME, FILE_TIME))

    contents = {name: file.sha256 for name, file in files.items()}
    final = cache / "contexts" / f"downloads-{digest_contents(contents)[:16]}"
    return store_content(final, contents, make)


def has_sha256(path: Path, digest: str) -> bool:
    """Return whether a file has this sha256; an unchanged file is read only once per process."""
    status = path.stat()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
    if state not in _KNOWN:
        _KNOWN[state] = file_sha256(path)
    return _KNOWN[state] == digest


def fetch_all(
    downloads: Iterable[Source],
    store: ContentStore,
    sites: Sites,
    progress: "Progress",
    failed: dict[Source, ImgbuildError] | None = None,
) -> None:
    """Download the files that ``store`` lacks, several at the same time.

    The first error stops all downloads. An incomplete file stays as ``.part``, and the next call
    resumes it. If another process downloads the same file, the call waits for it. ``failed``
    collects errors by file, but not for downloads that stopped because another one failed.

    CheckFailedError: a file has the wrong sha256.
    MachineError: a file cannot be downloaded, or the store cannot be written.
    """
    missing = [file for file in dict.fromkeys(downloads) if not store.find(file.sha256, file.size)]
    if not missing:
        return

    client = sites.client()

    def put(file: Source, make: Callable[[Path], None]) -> None:
        def make_or_note(part: Path) -> None:
            try:
                make(part)
            except ImgbuildError as error:
                if failed is not None and not client.closed:
                    failed[file] = error
                raise

        store.put(file.sha256, make_or_note, file.size, name=file.name)

    def fetch(file: Source) -> None:
        if file.url.startswith("file://"):
            put(file, partial(_copy_file, file))
            return
        address, task = sites.address(file.url), progress.add_task(file.name, total=file.size)
        update = partial(progress.update, task)
        put(file, _Transfer(file, address, redact(address), sites, client, update).complete)
        progress.remove_task(task)

    try:
        in_parallel(fetch, missing, _CONNECTIONS, stop=client.close, grace=_STOP_SECONDS)
    finally:
        client.close()


def _copy_file(file: Source, part: Path) -> None:
    """Copy a file from a Python index that is a folder on this machine."""
    path = Path(unquote(urlsplit(file.url).path))
    try:
        copyfile(path, part)
    except OSError as error:
        message = f"{file.name} cannot be copied from {path}: {error.strerror}."
        raise MachineError(message) from None
    if file_sha256(part) != file.sha256:
        part.unlink()
        message = f"{path} does not have the expected sha256 {file.sha256}. Nothing was kept."
        raise CheckFailedError(message)


@dataclass(frozen=True)
class _Transfer:
    """The download of one file.

    ``shown`` is the address without a login. ``update`` changes the file's progress bar.
    """

    download: Source
    address: str
    shown: str
    sites: Sites
    client: "HttpClient"
    update: Callable[..., None]

    def complete(self, part: Path) -> None:
        resumed = self._receive(part)
        digest = file_sha256(part)
        if resumed and digest != self.download.sha256:
            # The beginning may come from another file, so start again.
            part.unlink()
            self._receive(part)
            digest = file_sha256(part)
        if digest != self.download.sha256:
            error = self._wrong_content(part, digest)
            part.unlink()
            raise error
        _say(f"fetched {self.download.name} ({size_text(part.stat().st_size)})")

    def _receive(self, part: Path) -> bool:
        """Download the file; return whether the last try resumed an earlier one."""
        try:
            return self.client.retry(self.shown, lambda: self._attempt(part))
        except MachineError as error:
            advice = self.sites.advice(self.address)
            message = f"{self.download.name} cannot be fetched: {error} {advice}"
            raise MachineError(message) from None

    def _attempt(self, part: Path) -> bool:
        from imgbuild.net.http import TransientError, raise_transient  # noqa: PLC0415 - slow import

        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self.client.stream("GET", self.address, headers) as response:
            status, reason = response.status_code, f" ({response.reason})"
            if status == 416 and have:
                return True
            raise_transient(status, response.headers, reason)
            if status not in {200, 206}:
                # Do not show an address after a redirect, because it may be private.
                hint = self._login_hint() if status in {401, 403, 407} else ""
                raise MachineError(f"{self.shown} answered {status}{reason}{hint}.")
            ranged = _FIRST_BYTE.match(response.headers.get("Content-Range", ""))
            start = int(ranged[1]) if status == 206 and ranged else 0
            if start not in {0, have}:
                part.unlink(missing_ok=True)
                raise TransientError("it sent a different range than requested")
            self._write(response, part, start)
        return start > 0

    def _write(self, response: "Response", part: Path, start: int) -> None:
        from imgbuild.net.http import limit_time  # noqa: PLC0415 - slow import

        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        self.update(completed=start, total=total)
        file = part.open("ab" if start else "wb")
        with file as out, limit_time(_CHUNK_SECONDS, response) as restart:
            # Do not decode, because a server may send a .tar.gz as a .tar with gzip encoding.
            for piece in response.raw.stream(_CHUNK, decode_content=False):
                restart()
                if self.client.closed:
                    raise MachineError("another download failed")  # users see only the other error
                out.write(piece)
                self.update(advance=len(piece))
                if self.download.size is not None and out.tell() > self.download.size:
                    break  # too large, so its sha256 is wrong, and it may never end

    def _login_hint(self) -> str:
        if self.sites.login(self.address):
            return ": it refused the login in the netrc file; correct the file"
        return ": it requires a login; set a netrc file that has one (netrc: in the settings)"

    def _wrong_content(self, part: Path, digest: str) -> CheckFailedError:
        page = _find_title(part)
        hint = (
            f" The server sent an HTML page{page} instead: a login, a notice or an error of the "
            "mirror or a proxy. Open the address in a browser to see the reason."
            if page is not None
            else " Nothing was kept. If the file was published again, read what changed before you "
            "change the sha256 in matrix.yaml. If a mirror is wrong, correct it (docs/mirrors.md)."
        )
        return CheckFailedError(
            f"{self.download.name} is not the expected file: {self.shown} sent "
            f"{part.stat().st_size} bytes with sha256 {digest}, but the expected sha256 is "
            f"{self.download.sha256}.{hint}"
        )


def _find_title(path: Path) -> str | None:
    """Return the title of an HTML page in parentheses, or an empty text if it has no title.

    Return None if the file is not an HTML page.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not _HTML.match(head):
        return None
    match = _TITLE.search(head)
    title = " ".join(match[1].decode("utf-8", "replace").split()) if match else ""
    return f" (“{title}”)" if title and title.isprintable() else ""
