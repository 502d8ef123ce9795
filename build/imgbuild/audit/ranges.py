"""Bytes out of the middle of a file on a server: one range a request, each answer checked."""

import re
from collections.abc import Callable, Iterator

import requests

from imgbuild.audit.client import Client, body
from imgbuild.audit.failure import ReadError, StatusError
from imgbuild.http import shown

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_PARTIAL = 206


class RangeReader:
    """A file at a URL. ``size`` is in bytes; ``bytes_read`` counts what was transferred."""

    def __init__(
        self, client: Client, url: str, tell: Callable[[int], None] = lambda _: None
    ) -> None:
        self._client = client
        self._url = url
        self._tell = tell
        self.bytes_read = 0
        self.size = 0
        self.head = self._first()

    @property
    def name(self) -> str:
        """The address, for messages."""
        return shown(self._url)

    def read(self, start: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``start``.

        Raises:
            ReadError: the place is outside the file; or the server's answer is not exactly this
                range, however it says so.

        """
        if start < 0 or length <= 0 or start + length > self.size:
            raise ReadError(
                f"{self.name}: bytes {start} to {start + length} are asked for by the file itself, "
                f"which has {self.size}. It is damaged, or not what it is called."
            )
        return self._request(start, length)

    def chunks(self, start: int, length: int, size: int) -> Iterator[bytes]:
        """Yield a range in pieces of ``size``, each its own request, made when it is asked for."""
        for offset in range(0, length, size):
            yield self.read(start + offset, min(size, length - offset))

    def _first(self) -> bytes:
        """Read the first bytes, and with them how long the file is."""
        with self._client.answering(self._url, {"Range": "bytes=0-3"}) as answer:
            self._check_status(answer)
            match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if not match or match[1] != "0" or match[2] != "3":
                raise ReadError(self._wrong_range(answer, "bytes 0-3"))
            self.size = int(match[3])
            return self._body(answer, 4)

    def _request(self, start: int, length: int) -> bytes:
        wanted = f"{start}-{start + length - 1}"
        with self._client.answering(self._url, {"Range": f"bytes={wanted}"}) as answer:
            self._check_status(answer)
            if answer.headers.get("Content-Range") != f"bytes {wanted}/{self.size}":
                raise ReadError(self._wrong_range(answer, f"bytes {wanted}/{self.size}"))
            return self._body(answer, length)

    def _body(self, answer: requests.Response, length: int) -> bytes:
        content = body(answer, length, self._count)
        if len(content) != length:
            raise ReadError(
                f"{self.name}: a range of {length} bytes arrived as {len(content)} bytes or more. "
                "Something between here and the server cuts or pads answers; try again."
            )
        return content

    def _count(self, arrived: int) -> None:
        self.bytes_read += arrived
        self._client.count(arrived)
        self._tell(arrived)

    def _check_status(self, answer: requests.Response) -> None:
        encoding = answer.headers.get("Content-Encoding", "identity")
        if answer.status_code != _PARTIAL:
            hint = " It ignores ranges; name an index that does not." * (answer.status_code == 200)
            raise StatusError(
                f"{self.name}: asked for a range, the server says {answer.status_code} "
                f"{answer.reason}.{hint} Nothing more was read of it.",
                answer.status_code,
            )
        if encoding != "identity":
            raise ReadError(f"{self.name}: the server encodes ranges as {encoding!r}.")

    def _wrong_range(self, answer: requests.Response, wanted: str) -> str:
        said = answer.headers.get("Content-Range")
        return f"{self.name}: asked for {wanted}, the server answers with {said!r}. Not used."
