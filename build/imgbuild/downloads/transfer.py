"""One file over the network into its ``.part``: continued where it stopped, tried again, judged."""

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import requests
from urllib3.exceptions import HTTPError

from imgbuild.downloads.download import Download, file_sha256
from imgbuild.downloads.faults import (
    Content,
    TryAgainError,
    gave_up,
    reason_of,
    refused,
    wrong_content,
)
from imgbuild.downloads.progress import SILENCE, Progress
from imgbuild.downloads.sites import Sites
from imgbuild.downloads.web import answer

ATTEMPTS = 3
PAUSE_SECONDS = 1.0
_CHUNK = 1 << 18
_HEAD = 1 << 16  # what a page's title is looked for in
PASSING = {408, 425, 429, 500, 502, 503, 504}
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class StoppedError(Exception):
    """Another download failed, so this one was given up; its part stays. Never shown."""


@dataclass(frozen=True)
class Way:
    """How a file comes: from which sites, who hears of it, and what stops it.

    ``headers`` are asked with, of the file's own site only if they authorize.
    """

    sites: Sites
    progress: Progress = SILENCE
    stop: threading.Event = field(default_factory=threading.Event)
    headers: Mapping[str, str] = field(default_factory=dict)


def transfer(download: Download, part: Path, way: Way) -> int:
    """Bring the file into ``part`` and return its size in bytes; ``part`` is then the right one.

    What is in ``part`` already is continued. A wrong file is removed.

    Raises:
        CheckFailedError: what came is another file than its sha256 says.
        MachineError: it cannot be had: no connection, no such file, no login, not whole.

    """
    address = way.sites.address(download.url)
    reason = ""
    for attempt in range(ATTEMPTS):
        _wait(attempt, way)
        try:
            content = _attempt(download, part, address, way)
        except TryAgainError as error:
            reason = str(error)
            continue
        if content.sha256 == download.sha256:
            return content.size
        part.unlink()
        # What was there from another time may have been something else: once more, from the start.
        if not content.resumed or attempt == ATTEMPTS - 1:
            raise wrong_content(download, address, content)
    raise gave_up(download, address, reason, ATTEMPTS, way.sites)


def _wait(attempt: int, way: Way) -> None:
    if attempt and way.stop.wait(PAUSE_SECONDS * attempt):
        raise StoppedError


def _attempt(download: Download, part: Path, address: str, way: Way) -> Content:
    have = part.stat().st_size if part.exists() else 0
    piece = {"Range": f"bytes={have}-"} if have else {}
    try:
        with answer(address, way.sites, {**way.headers, **piece}, hash_known=True) as response:
            if response.status_code == 416 and have:
                return Content(file_sha256(part), have, resumed=True)
            return _receive(download, part, response, way)
    except requests.exceptions.SSLError as error:
        raise gave_up(download, address, reason_of(error), 1, way.sites) from error
    except requests.RequestException as error:
        raise TryAgainError(reason_of(error)) from error


def _receive(download: Download, part: Path, response: requests.Response, way: Way) -> Content:
    have = part.stat().st_size if part.exists() else 0
    start, total = _extent(response)
    if start not in {0, have}:
        part.unlink(missing_ok=True)
        raise TryAgainError("it sent another piece than the one asked for")
    _judge(download, response, way.sites)
    way.progress.begin(download, start, total)
    content = _write(download, part, response, start, way)
    too_long = download.size is not None and content.size > download.size
    if total is not None and content.size < total and not too_long:
        raise TryAgainError(f"it sent {content.size} of {total} bytes announced")
    return content


def _extent(response: requests.Response) -> tuple[int, int | None]:
    """Return at which byte of the file the answer starts, and how large the file is."""
    ranged = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code == 206 and ranged:
        return int(ranged[1]), None if ranged[2] == "*" else int(ranged[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _judge(download: Download, response: requests.Response, sites: Sites) -> None:
    status = response.status_code
    if status in PASSING:
        raise TryAgainError(f"it answered {status} ({response.reason})")
    if status not in {200, 206}:
        # The address that was asked: where it redirected to may be nobody's business.
        raise refused(download, sites.address(download.url), status, sites)


def _write(
    download: Download, part: Path, response: requests.Response, start: int, way: Way
) -> Content:
    digest, head = hashlib.sha256(), b""
    with part.open("r+b" if start else "wb") as out:
        for chunk in iter(lambda: out.read(_CHUNK), b"") if start else ():
            digest.update(chunk)
            head = head or chunk[:_HEAD]
        for chunk in _chunks(response):
            _check_stop(way)
            out.write(chunk)
            digest.update(chunk)
            head = head + chunk[: _HEAD - len(head)] if len(head) < _HEAD else head
            way.progress.advance(download, len(chunk))
            if download.size is not None and out.tell() > download.size:
                break  # it can only be wrong, and may be without end
        size = out.tell()
    kind = response.headers.get("Content-Type", "")
    return Content(digest.hexdigest(), size, kind, head, resumed=start > 0)


def _chunks(response: requests.Response) -> Iterator[bytes]:
    """Yield the body as it was sent; a server may call a .tar.gz a packed .tar."""
    try:
        yield from response.raw.stream(_CHUNK, decode_content=False)
    except HTTPError as error:
        raise TryAgainError(_broken(response, error)) from error


def _broken(response: requests.Response, error: HTTPError) -> str:
    total = _extent(response)[1]
    if total is None:
        return f"the connection broke ({type(error).__name__})"
    sent = response.raw.tell() + _extent(response)[0]
    return f"it sent {sent} of {total} bytes announced"


def _check_stop(way: Way) -> None:
    if way.stop.is_set():
        raise StoppedError
