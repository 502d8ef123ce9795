"""Serves a folder to builds over plain HTTP, and remembers what was asked for."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

_LOOPBACK = "127.0.0.1"
_CHUNK = 1 << 20
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True)
class Asked:
    """One request, and what it got."""

    method: str
    path: str
    status: int


@dataclass
class StandInServer:
    """A server at work, on the given address and on loopback; stop it with :meth:`close`."""

    folder: Path
    address: str
    port: int
    asked: list[Asked] = field(default_factory=list)
    _servers: list[ThreadingHTTPServer] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where builds reach it."""
        return f"http://{self.address}:{self.port}"

    def paths(self) -> set[str]:
        """Return the paths that were asked for and given."""
        return {one.path for one in self.asked if one.status < HTTPStatus.BAD_REQUEST}

    def start(self) -> None:
        """Listen; a port of 0 becomes a free one."""
        for address in dict.fromkeys((self.address, _LOOPBACK)):
            server = _Server((address, self.port), _Handler)
            server.owner = self
            self.port = server.server_address[1]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self._servers.append(server)

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(folder: Path, address: str = _LOOPBACK, port: int = 0) -> StandInServer:
    """Serve ``folder``/www until the answer is closed; requests go to ``folder``/access.log too."""
    server = StandInServer(folder, address, port)
    server.start()
    return server


class _Server(ThreadingHTTPServer):
    owner: StandInServer
    daemon_threads = True
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a file, or the part of it that is asked for."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Send a file's headers."""
        self._answer(body=False)

    def log_message(self, *_: Any) -> None:
        """Say nothing; :meth:`_remember` keeps the requests."""

    def _answer(self, *, body: bool) -> None:
        path = _find(self.server.owner.folder / "www", self.path)
        if path is None:
            self._send_plain(HTTPStatus.NOT_FOUND, "there is no such stand-in\n")
            return
        modified = int(path.stat().st_mtime)
        if self._is_fresh(modified):
            self._send_plain(HTTPStatus.NOT_MODIFIED, "")
            return
        with path.open("rb") as stream:
            length = self._send_headers(stream, path.stat().st_size, modified)
            if body:
                _copy(stream, self.wfile, length)

    def _send_headers(self, stream: IO[bytes], size: int, modified: int) -> int:
        """Send the headers, put ``stream`` at its place; return how many bytes follow."""
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        first = int(asked[1]) if asked else 0
        last = min(int(asked[2]) if asked and asked[2] else size - 1, size - 1)
        partial = asked is not None and first <= last
        status = HTTPStatus.PARTIAL_CONTENT if partial else HTTPStatus.OK
        length = last - first + 1 if partial else size
        self._remember(status)
        self.send_response(status)
        if partial:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            stream.seek(first)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Last-Modified", formatdate(modified, usegmt=True))
        self.send_header("Content-Length", str(length))
        self.end_headers()
        return length

    def _send_plain(self, status: HTTPStatus, text: str) -> None:
        self._remember(status)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text.encode())

    def _is_fresh(self, modified: int) -> bool:
        since = self.headers.get("If-Modified-Since")
        return since is not None and parsedate_to_datetime(since).timestamp() >= modified

    def _remember(self, status: HTTPStatus) -> None:
        owner = self.server.owner
        owner.asked.append(Asked(self.command, self.path, int(status)))
        with (owner.folder / "access.log").open("a", encoding="utf-8") as log:
            log.write(f"{self.command} {self.path} {int(status)}\n")


def _find(root: Path, asked: str) -> Path | None:
    """Return the file at a URL's path; nothing outside of ``root``'s own names is found."""
    parts = [part for part in unquote(asked.partition("?")[0]).split("/") if part not in {"", "."}]
    path = root.joinpath(*parts)
    return path if ".." not in parts and path.is_file() else None


def _copy(stream: IO[bytes], out: Any, length: int) -> None:
    while length > 0:
        chunk = stream.read(min(length, _CHUNK))
        if not chunk:
            return
        out.write(chunk)
        length -= len(chunk)
