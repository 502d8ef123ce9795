"""Transfer files over HTTP: continued where they stopped, several at once."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import requests

from imgbuild.errors import MachineError
from imgbuild.files import ContentStore, file_sha256
from imgbuild.http import GaveUpError, HttpClient, TransientError, raise_transient, shown
from imgbuild.inputs.download import Download, NotFetchedError, WrongContentError
from imgbuild.inputs.download_progress import DownloadProgress
from imgbuild.parallel import in_parallel
from imgbuild.settings import Sites

_CONNECTIONS = 4
_STOP_SECONDS = 2.0  # for threads to see that another one failed
_CHUNK = 1 << 18
_HEAD = 1 << 16  # where the title of a page is looked for
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_HTML = re.compile(rb"\s*(<!doctype html|<html)", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_LONGEST_TITLE = 80


def transfer(
    downloads: Sequence[Download], store: ContentStore, sites: Sites, progress: DownloadProgress
) -> None:
    """Fetch files into ``store``; see `imgbuild.inputs.download.fetch_all`."""
    client = sites.client()
    one = _Transfer(client, sites, progress)

    def fetch(download: Download) -> Path:
        def make(part: Path) -> None:
            progress.end(download.file_name, one.fill(download, part))

        return store.put(download.sha256, make, download.size, name=download.file_name)

    try:
        in_parallel(fetch, downloads, _CONNECTIONS, stop=client.close, grace=_STOP_SECONDS)
    finally:
        client.close()


@dataclass(frozen=True)
class _Content:
    """What came: its sha256, size in bytes, the kind that the server called it, its beginning."""

    sha256: str
    size: int
    kind: str = ""
    head: bytes = b""
    resumed: bool = False


@dataclass(frozen=True)
class _Transfer:
    """How files come: from which sites, and who is shown how far they are."""

    client: HttpClient
    sites: Sites
    progress: DownloadProgress

    def fill(self, download: Download, part: Path) -> int:
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
        try:
            return self.client.retry(address, lambda: self._attempt(download, part, address))
        except GaveUpError as error:
            why = f"{shown(address)}: {error.reason} ({error.tries})."
        except MachineError as error:
            why = str(error)
        raise NotFetchedError(
            f"{download.file_name} cannot be fetched: {why} {self.sites.advice(address)}", download
        )

    def _attempt(self, download: Download, part: Path, address: str) -> _Content:
        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self.client.stream("GET", address, headers) as response:
            status = response.status_code
            if status == 416 and have:
                return _Content(file_sha256(part), have, resumed=True)
            raise_transient(status, response.headers, f" ({response.reason})")
            if status not in {200, 206}:
                # Not the address that it redirected to, which may be private.
                meaning = self._meaning(address, status)
                raise MachineError(f"{shown(address)} answered {status}{meaning}.")
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

    def _meaning(self, address: str, status: int) -> str:
        """Return what an answer means that another try would not change."""
        if status in {401, 403, 407}:
            if self.sites.login(address):
                return ": it refused the login of the netrc file; correct it there"
            return ": it asks for a login; name a netrc file with one (netrc: in the settings)"
        return {404: ": there is no such file", 410: ": the file is gone"}.get(status, "")

    def _write(
        self, download: Download, part: Path, response: requests.Response, start: int
    ) -> _Content:
        digest, head = hashlib.sha256(), b""
        with part.open("r+b" if start else "wb") as out:
            for chunk in iter(lambda: out.read(_CHUNK), b"") if start else ():
                digest.update(chunk)
                head = head or chunk[:_HEAD]
            # As it was sent: a server may call a .tar.gz a packed .tar.
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                if self.client.closed:
                    raise TransientError("another download failed")
                out.write(chunk)
                digest.update(chunk)
                head += chunk[: max(0, _HEAD - len(head))]
                self.progress.advance(download.file_name, len(chunk))
                if download.size is not None and out.tell() > download.size:
                    break  # it can only be wrong, and may be without end
            size = out.tell()
        kind = response.headers.get("Content-Type", "")
        return _Content(digest.hexdigest(), size, kind, head, resumed=start > 0)


def _extent(response: requests.Response) -> tuple[int, int | None]:
    """Return at which byte of the file the answer starts, and how large the file is."""
    ranged = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code == 206 and ranged:
        return int(ranged[1]), None if ranged[2] == "*" else int(ranged[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _wrong_content(download: Download, address: str, content: _Content) -> WrongContentError:
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
