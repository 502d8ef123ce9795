"""Download files by sha256 into a store, continued where they stopped, and into build contexts."""

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

if TYPE_CHECKING:  # a plan needs neither
    from requests import Response
    from rich.progress import Progress

    from imgbuild.net.http import HttpClient

#: The sha256 of files by device, inode, size and time of change.
_KNOWN: dict[tuple[int, ...], str] = {}
_CONNECTIONS = 4
_STOP_SECONDS = 2.0  # for threads to see that another one failed
_CHUNK = 1 << 18
#: Slower than a chunk in so many seconds, 2 kB/s, is a server that does not answer.
_CHUNK_SECONDS = 120.0
_FIRST_BYTE = re.compile(r"bytes (\d+)-")
_HEAD = 1 << 16  # where the title of a page is looked for
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<!doctype html|<html)", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>([^<]{1,80})</title>", re.IGNORECASE)


def show_progress() -> "Progress":
    """Return what draws bars on a terminal, each for a file under way; lines come above them."""
    from rich.console import Console  # noqa: PLC0415 - only where something is fetched
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn  # noqa: PLC0415

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())


def _say(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")


def digest_contents(files: Mapping[str, str]) -> str:
    """Return the sha256, in hexadecimal, over the names and the sha256 of files."""
    return json_sha256(sorted(files.items()))


def store_content(final: Path, files: Mapping[str, str], make: Callable[[Path], None]) -> Path:
    """Return the folder ``final``, which holds exactly ``files``: the sha256 by relative path.

    If it does not, ``make`` fills an empty folder in its place.
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
    """Return a folder of ``cache`` that holds the downloads under their names, nothing else.

    Files that are missing are fetched into ``cache/downloads``; ``failed`` is as in `fetch_all`.

    InputError: two downloads have one name and different content.
    CheckFailedError: a file has another sha256.
    MachineError: a file cannot be had, or the cache cannot be written.
    """
    files: dict[str, Source] = {}
    for download in downloads:
        other = files.setdefault(download.name, download)
        if other.sha256 != download.sha256:
            raise InputError(
                f"Two downloads are called {download.name} and differ: {other.url} and "
                f"{download.url}. Give one of them another file name."
            )
    store = ContentStore(cache / "downloads")

    def make(folder: Path) -> None:
        for file in files.values():
            path = store.path(file.sha256)
            if path.is_file() and not has_sha256(path, file.sha256):
                _say(f"{file.name} in the cache was damaged (its sha256 is another): fetched again")
                path.unlink()
        fetch_all(files.values(), store, sites, progress, failed)
        for file in files.values():
            link_or_copy(store.path(file.sha256), folder / file.name)
        os.utime(folder, (FILE_TIME, FILE_TIME))

    contents = {name: file.sha256 for name, file in files.items()}
    final = cache / "contexts" / f"downloads-{digest_contents(contents)[:16]}"
    return store_content(final, contents, make)


def has_sha256(path: Path, digest: str) -> bool:
    """Return whether a file has its sha256; an unchanged file is read once a process."""
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
    """Fetch what ``store`` lacks, several files at once.

    The first fault stops the others; what has come of a file stays as its ``.part``, which the next
    call continues. Another process that fetches the same file is waited for. ``failed`` gets the
    error of a file that cannot be had, but not of one that another file's fault has stopped.

    CheckFailedError: a file has another sha256.
    MachineError: one cannot be had, or the store cannot be written.
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
    """Copy a file of an index that is a folder of this machine."""
    path = Path(unquote(urlsplit(file.url).path))
    try:
        copyfile(path, part)
    except OSError as error:
        message = f"{file.name} cannot be copied from {path}: {error.strerror}."
        raise MachineError(message) from None
    if file_sha256(part) != file.sha256:
        part.unlink()
        message = f"{path} has another sha256 than expected: {file.sha256}. Nothing was kept."
        raise CheckFailedError(message)


@dataclass(frozen=True)
class _Transfer:
    """The way of one file; ``shown`` is its address without a login, ``update`` that of a bar."""

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
            # The beginning may have been of another file: start again.
            part.unlink()
            self._receive(part)
            digest = file_sha256(part)
        if digest != self.download.sha256:
            error = self._wrong_content(part, digest)
            part.unlink()
            raise error
        _say(f"fetched {self.download.name} ({size_text(part.stat().st_size)})")

    def _receive(self, part: Path) -> bool:
        """Return whether the beginning of the file was there before the last try."""
        try:
            return self.client.retry(self.shown, lambda: self._attempt(part))
        except MachineError as error:
            advice = self.sites.advice(self.address)
            message = f"{self.download.name} cannot be fetched: {error} {advice}"
            raise MachineError(message) from None

    def _attempt(self, part: Path) -> bool:
        from imgbuild.net.http import TransientError, raise_transient  # noqa: PLC0415 - brings requests

        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self.client.stream("GET", self.address, headers) as response:
            status, reason = response.status_code, f" ({response.reason})"
            if status == 416 and have:
                return True
            raise_transient(status, response.headers, reason)
            if status not in {200, 206}:
                # Not the address that it redirected to, which may be private.
                hint = self._login_hint() if status in {401, 403, 407} else ""
                raise MachineError(f"{self.shown} answered {status}{reason}{hint}.")
            ranged = _FIRST_BYTE.match(response.headers.get("Content-Range", ""))
            start = int(ranged[1]) if status == 206 and ranged else 0
            if start not in {0, have}:
                part.unlink(missing_ok=True)
                raise TransientError("it sent another range than requested")
            self._write(response, part, start)
        return start > 0

    def _write(self, response: "Response", part: Path, start: int) -> None:
        from imgbuild.net.http import limit_time  # noqa: PLC0415 - brings requests

        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        self.update(completed=start, total=total)
        file = part.open("ab" if start else "wb")
        with file as out, limit_time(_CHUNK_SECONDS, response) as restart:
            # As it was sent: a server may call a .tar.gz a packed .tar.
            for piece in response.raw.stream(_CHUNK, decode_content=False):
                restart()
                if self.client.closed:
                    raise MachineError("another download failed")  # its error is the one shown
                out.write(piece)
                self.update(advance=len(piece))
                if self.download.size is not None and out.tell() > self.download.size:
                    break  # it can only be wrong, and may be without end

    def _login_hint(self) -> str:
        if self.sites.login(self.address):
            return ": it refused the login of the netrc file; correct it there"
        return ": it asks for a login; name a netrc file with one (netrc: in the settings)"

    def _wrong_content(self, part: Path, digest: str) -> CheckFailedError:
        page = _find_title(part)
        hint = (
            f" The server sent an HTML page{page}: a login, a notice or an error of the mirror or "
            "a proxy, not the file. Open the address in a browser to see the reason."
            if page is not None
            else " Nothing was kept. If the file was published anew, read what changed before you "
            "change the sha256 in matrix.yaml; if a mirror is wrong, correct it (docs/mirrors.md)."
        )
        return CheckFailedError(
            f"{self.download.name} is not the expected file: {self.shown} gave "
            f"{part.stat().st_size} bytes with sha256 {digest}, expected is "
            f"{self.download.sha256}.{hint}"
        )


def _find_title(path: Path) -> str | None:
    """Return ``None`` if the file is no HTML page, else its title in brackets or nothing."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not _HTML.match(head):
        return None
    match = _TITLE.search(head)
    title = " ".join(match[1].decode("utf-8", "replace").split()) if match else ""
    return f" (“{title}”)" if title and title.isprintable() else ""
