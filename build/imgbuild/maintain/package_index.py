"""List the files of a project in the Python package index, and read parts of a file."""

import io
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from uv import find_uv_bin

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.process import run
from imgbuild.locks.requirements import index_environment
from imgbuild.net.addresses import redact
from imgbuild.net.http import HttpClient
from imgbuild.net.sites import Sites

#: Bytes per request; a wheel has up to 500 MB, but only a few MB are read.
BLOCK = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
#: The default of ``--default-index`` in the help text of uv.
_DEFAULT = re.compile(r"default package index\s+\(by\s+default:\s+<(https://\S+?)>\)")


@dataclass(frozen=True)
class OfferedFile:
    """A file of a project. ``yanked`` is the reason if it was yanked."""

    name: str
    url: str
    sha256: str
    yanked: str | None = None


def find_index_url(sites: Sites) -> str:
    """Return the URL of the index: the mirror, or uv's or pip's variables, or uv's default.

    uv only prints its default in its help text, but its version is pinned.

    InputError: the URL is invalid.
    """
    environment = index_environment(sites)
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    url = next((environment[name] for name in names if environment.get(name)), "")
    if not url:
        usage = run([find_uv_bin(), "pip", "compile", "--help"], timeout=10).output
        match = _DEFAULT.search(usage)
        if match is None:
            raise InputError("There is no package index: set UV_DEFAULT_INDEX.")
        url = match[1]
    try:
        urlsplit(url)
    except ValueError as error:  # do not print the URL, because it may contain a login
        named = ", ".join(names)
        raise InputError(f"The package index in {named}: {error}. Correct it.") from error
    return url.rstrip("/")


def read_project_page(client: HttpClient, index: str, name: str) -> dict[str, OfferedFile]:
    """Return the files of a project by name; empty if the index has no such project.

    The page is read as HTML (PEP 503), because every index supports it.

    MachineError: the index does not answer, or does not return a list of files.
    """
    answer = client.get(f"{index}/{name}/", {"Accept": "text/html"})
    if answer.status in {404, 410}:
        return {}
    files = _parse_page(answer.url, answer.body.decode("utf-8", "replace"))
    if answer.status != 200 or not files:
        kind = answer.headers.get("Content-Type", "no content type")
        raise MachineError(
            f"{redact(answer.url)} answers {answer.status} with {kind}, but without a list of "
            "files (PEP 503)."
        )
    return {file.name: file for file in files}


def _parse_page(base: str, page: str) -> list[OfferedFile]:
    links: list[dict[str, str | None]] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend([dict(attrs)] if tag == "a" else [])

    Links().feed(page)
    files = []
    for link in links:
        try:
            url, fragment = urldefrag(urljoin(base, link.get("href") or ""))
        except ValueError:  # an invalid URL
            continue
        algorithm, _, digest = fragment.partition("=")
        yanked = (link["data-yanked"] or "no reason given") if "data-yanked" in link else None
        if algorithm == "sha256":
            name = unquote(urlsplit(url).path.rpartition("/")[2])
            files.append(OfferedFile(name, url, digest, yanked))
    return files


class RemoteFile(io.RawIOBase):
    """A remote file that is read with range requests, so that zipfile can read parts of it.

    ``size`` is the size of the file; ``bytes_read`` counts the transferred bytes.
    """

    def __init__(self, client: HttpClient, url: str) -> None:
        self.url = url
        self.bytes_read = 0
        self.client = client
        self._position = 0
        _, self.size = self._range(0, 1)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Fill the buffer with one request."""
        length = min(len(buffer), self.size - self._position)
        if length <= 0:
            return 0
        buffer[:length], _ = self._range(self._position, length)
        self._position += length
        return length

    def _range(self, start: int, length: int) -> tuple[bytes, int]:
        """Return exactly these bytes, and the size of the file."""
        end = start + length - 1
        headers = {"Range": f"bytes={start}-{end}"}
        answer = self.client.get(self.url, headers, limit=length + BLOCK)
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        right = match and (int(match[1]), int(match[2])) == (start, end)
        if answer.status != 206 or not match or not right or len(answer.body) != length:
            hint = " It ignores ranges; use another index." * (answer.status == 200)
            raise MachineError(
                f"{redact(self.url)}: for bytes {start}-{end} the server answered {answer.status} "
                f"with {len(answer.body)} bytes.{hint}"
            )
        self.bytes_read += length
        return answer.body, int(match[3])
