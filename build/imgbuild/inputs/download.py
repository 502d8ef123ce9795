"""Download files by sha256: continued where they stopped, several at once, kept in a store."""

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from imgbuild.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.files import (
    FILE_TIME,
    ContentStore,
    file_sha256,
    json_sha256,
    link_or_copy,
    stored_folder,
)
from imgbuild.inputs.download_progress import DownloadProgress
from imgbuild.parallel import in_parallel
from imgbuild.scalars import Sha256
from imgbuild.sites import Sites

if TYPE_CHECKING:  # requests takes 0.1 s to import, and a plan needs no network
    import requests

    from imgbuild.http import HttpClient

_CONNECTIONS = 4
_STOP_SECONDS = 2.0  # for threads to notice that another one failed
_CHUNK = 1 << 18
_HEAD = 1 << 16  # where the title of a page is looked for
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_HTML = re.compile(rb"\s*(<!doctype html|<html)", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_LONGEST_TITLE = 80
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
        client = sites.client()
        transfer = _Transfer(client, sites, progress or DownloadProgress())

        def fetch(download: Download) -> Path:
            return transfer.fetch(download, store)

        try:
            in_parallel(fetch, missing, _CONNECTIONS, stop=client.close, grace=_STOP_SECONDS)
        finally:
            client.close()
    return {file: store.path(file.sha256) for file in files}


@plain_dataclass(frozen=True)
class _Content:
    """What came: its sha256, size in bytes, the kind that the server called it, its beginning."""

    sha256: str
    size: int
    kind: str = ""
    head: bytes = b""
    resumed: bool = False


@plain_dataclass(frozen=True)
class _Transfer:
    """How files come: from which sites, and who is shown how far they are."""

    client: "HttpClient"
    sites: Sites
    progress: DownloadProgress

    def fetch(self, download: Download, store: ContentStore) -> Path:
        """Return the file's path in ``store``."""

        def make(part: Path) -> None:
            self.progress.end(download.file_name, self._fill(download, part))

        return store.put(download.sha256, make, download.size, name=download.file_name)

    def _fill(self, download: Download, part: Path) -> int:
        """Complete ``part``, and return its size in bytes; a wrong file is removed."""
        address = self.sites.address(download.url)
        content = self._received(download, part, address)
        if content.sha256 != download.sha256 and content.resumed:
            # What was there from another time may have been something else: from the start.
            part.unlink()
            content = self._received(download, part, address)
        if content.sha256 != download.sha256:
            part.unlink()
            raise _wrong_content(download, address, content)
        return content.size

    def _received(self, download: Download, part: Path, address: str) -> _Content:
        from imgbuild.http import shown  # noqa: PLC0415 - brings requests
        from imgbuild.retry import GaveUpError  # noqa: PLC0415

        start = f"{download.file_name} cannot be fetched: "
        try:
            return self.client.retry(address, lambda: self._attempt(download, part, address))
        except GaveUpError as error:
            why = f"{shown(address)}: {error.reason} ({error.tries})."
            raise NotFetchedError(f"{start}{why} {self.sites.advice(address)}", download) from None
        except NotFetchedError:
            raise
        except MachineError as error:
            advice = self.sites.advice(address)
            raise NotFetchedError(f"{start}{error} {advice}", download) from None

    def _attempt(self, download: Download, part: Path, address: str) -> _Content:
        from imgbuild.http import raise_transient  # noqa: PLC0415 - brings requests

        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self.client.stream("GET", address, headers) as response:
            status = response.status_code
            if status == 416 and have:
                return _Content(file_sha256(part), have, resumed=True)
            raise_transient(status, response.headers, f" ({response.reason})")
            if status not in {200, 206}:
                raise self._refused(download, address, status)
            return self._receive(download, part, response, have)

    def _receive(
        self, download: Download, part: Path, response: "requests.Response", have: int
    ) -> _Content:
        from imgbuild.retry import TransientError  # noqa: PLC0415 - brings requests

        start, total = _extent(response)
        if start not in {0, have}:
            part.unlink(missing_ok=True)
            raise TransientError("it sent another range than requested")
        self.progress.begin(download.file_name, start, total)
        content = self._write(download, part, response, start)
        too_long = download.size is not None and content.size > download.size
        if total is not None and content.size < total and not too_long:
            raise TransientError(f"it sent {content.size} of {total} bytes announced")
        return content

    def _write(
        self, download: Download, part: Path, response: "requests.Response", start: int
    ) -> _Content:
        digest, head = hashlib.sha256(), b""
        with part.open("r+b" if start else "wb") as out:
            for chunk in iter(lambda: out.read(_CHUNK), b"") if start else ():
                digest.update(chunk)
                head = head or chunk[:_HEAD]
            for chunk in self._chunks(response):
                out.write(chunk)
                digest.update(chunk)
                head += chunk[: max(0, _HEAD - len(head))]
                self.progress.advance(download.file_name, len(chunk))
                if download.size is not None and out.tell() > download.size:
                    break  # it can only be wrong, and may be without end
            size = out.tell()
        kind = response.headers.get("Content-Type", "")
        return _Content(digest.hexdigest(), size, kind, head, resumed=start > 0)

    def _chunks(self, response: "requests.Response") -> Iterator[bytes]:
        """Yield the body as it was sent; a server may call a .tar.gz a packed .tar."""
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - brings requests

        from imgbuild.retry import TransientError  # noqa: PLC0415

        try:
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                if self.client.closed:
                    raise TransientError("another download failed")
                yield chunk
        except HTTPError as error:
            start, total = _extent(response)
            if total is None:
                raise TransientError(f"the connection broke ({type(error).__name__})") from error
            sent = response.raw.tell() + start
            raise TransientError(f"it sent {sent} of {total} bytes announced") from error

    def _refused(self, download: Download, address: str, status: int) -> ImgbuildError:
        """Return the error of an answer that another try would not change."""
        from imgbuild.http import shown  # noqa: PLC0415 - brings requests

        meaning = {404: ": there is no such file", 410: ": the file is gone"}.get(status, "")
        if status in {401, 403, 407}:
            has = self.sites.login(address) is not None
            which = "refused the login of the netrc file" if has else "asks for a login"
            what = (
                "correct it there" if has else "name a netrc file with one (netrc: in the settings)"
            )
            meaning = f": it {which}; {what}"
        # Not the address that it redirected to, which may be private.
        return NotFetchedError(
            f"{download.file_name} cannot be fetched: {shown(address)} answered {status}{meaning}. "
            f"{self.sites.advice(address)}",
            download,
        )


def _extent(response: "requests.Response") -> tuple[int, int | None]:
    """Return at which byte of the file the answer starts, and how large the file is."""
    ranged = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code == 206 and ranged:
        return int(ranged[1]), None if ranged[2] == "*" else int(ranged[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _wrong_content(download: Download, address: str, content: _Content) -> ImgbuildError:
    from imgbuild.http import shown  # noqa: PLC0415 - brings requests

    page = _page(content)
    hint = (
        f" What came is an HTML page{page}: a login, a notice or an error of the mirror or of a "
        "proxy, not the file. Open the address in a browser to see what it wants."
        if page is not None
        else " Nothing was kept. If the file was published anew, read what changed before you "
        "change the sha256 in matrix.yaml; if a mirror is wrong, correct it (docs/guide.md)."
    )
    return WrongContentError(
        f"{download.file_name} is not the expected file: {shown(address)} gave {content.size} "
        f"bytes with sha256 {content.sha256}, expected is {download.sha256}.{hint}",
        download,
    )


def _page(content: _Content) -> str | None:
    """Return ``None`` if the content is no HTML page, else its title in brackets or nothing."""
    head = content.head.removeprefix(b"\xef\xbb\xbf")
    if "html" not in content.kind.lower() and not _HTML.match(head):
        return None
    found = _TITLE.search(head)
    title = " ".join(found[1].decode("utf-8", "replace").split()) if found else ""
    fits = 0 < len(title) <= _LONGEST_TITLE and title.isprintable()
    return f" (“{title}”)" if fits else ""


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
