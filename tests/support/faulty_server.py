"""A server on loopback with faults that a test chooses; it records its requests."""

import http.server
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar


@dataclass(frozen=True)
class Reply:
    """One answer. ``announced`` is the Content-Length, if it is not the body's own."""

    body: bytes = b""
    status: int = 200
    kind: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)
    announced: int | None = None
    ranges: bool = True
    login: str | None = None


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    path: str
    range: str | None
    authorization: str | None


class LoopbackServer(http.server.ThreadingHTTPServer):
    """A server on a port of its own, whose clients may hang up."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


class QuietHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def respond(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send an answer; the headers may announce another length than the body's."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


Server = TypeVar("Server", bound=LoopbackServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Give a server that lives as long as the block."""
    with server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


class FaultyServer(LoopbackServer):
    """Gives the replies of a path one after the other, the last one for ever."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.replies: dict[str, list[Reply]] = defaultdict(list)
        self.asked: list[Asked] = []

    def give(self, path: str, *replies: Reply) -> str:
        """Set what ``path`` answers; return its URL."""
        self.replies[path] = list(replies)
        return self.url + path

    def project(self, name: str, *files: str) -> None:
        """Offer a project's page: each of ``files`` is the attributes of a link, and its text."""
        page = "".join(f"<a {link}</a>\n" for link in files).encode()
        self.give(f"/simple/{name}/", Reply(page, kind="text/html"))


class _Handler(QuietHandler):
    server: FaultyServer

    def do_GET(self) -> None:
        authorization = self.headers.get("Authorization")
        asked = Asked(self.path, self.headers.get("Range"), authorization)
        self.server.asked.append(asked)
        replies = self.server.replies.get(self.path) or [Reply(b"no such file", 404, "text/plain")]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if reply.login and authorization != reply.login:
            reply = Reply(b"who are you?", 401, headers=reply.headers)
        self._send(reply, asked)

    def _send(self, reply: Reply, asked: Asked) -> None:
        body, status = reply.body, reply.status
        headers = {"Content-Type": reply.kind, **reply.headers}
        if asked.range and reply.ranges and status == 200:
            first, _, last = asked.range.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(body)), len(body) - 1)
            if start >= len(body):
                status, body = 416, b""
            else:
                headers["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
                status, body = 206, body[start : end + 1]
        if reply.announced is not None:
            headers["Content-Length"] = str(reply.announced)
        self.respond(status, body, headers)
        self.close_connection = True


def faulty_server() -> AbstractContextManager[FaultyServer]:
    """Return a server that lives as long as the block."""
    return serving(FaultyServer())


@contextmanager
def dripping(sent: bytes) -> Iterator[str]:
    """Give the address of a server that sends this at once, then a byte every 20 ms."""
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(1 << 16)
            connection.sendall(sent)
            while not over.wait(0.02):
                connection.sendall(b"x")

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        finally:
            over.set()
