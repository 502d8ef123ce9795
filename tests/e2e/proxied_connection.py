"""One client's connection to the proxy before a registry, with as many requests as it likes."""

from __future__ import annotations

import http.client
import socket
import struct
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from registry_proxy import Asked, RegistryProxy

_PIECE = 1 << 16
_TLS_HANDSHAKE = b"\x16"
#: Headers that are about one connection, not about what is handed on (RFC 9110, 7.6.1).
_OF_A_CONNECTION = frozenset({"connection", "keep-alive", "expect"})


def reset_on_close(connection: socket.socket) -> None:
    """Let the other side see a reset, not an end, when the connection is closed."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class ProxiedConnection(BaseHTTPRequestHandler):
    """Hands requests on, unless the proxy says that something happens to one."""

    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, proxy: RegistryProxy) -> None:
        """Serve until the client or a fault ends the connection; who called closes it."""
        self.proxy = proxy
        super().__init__(connection, connection.getpeername(), None)  # type: ignore[arg-type]

    def handle(self) -> None:
        """Turn a client that tries TLS first away, uncounted, as a plain registry does."""
        if self.connection.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
            self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            return
        super().handle()

    def do_any(self) -> None:
        asked = self.proxy.note(self.command, self.path)
        match asked.fault:
            case "die":
                self.proxy.die()
                self._reset()
            case "reset":
                self._reset()
            case "500" | "429" as status:
                self._refuse(int(status))
            case _ if asked.method == "PUT" and asked.manifest:
                with self.proxy.manifests:
                    self._hand_on(asked)
            case _:
                self._hand_on(asked)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_any  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing: the requests are in the proxy's list."""

    def _reset(self) -> None:
        reset_on_close(self.connection)
        self.close_connection = True

    def _refuse(self, status: int) -> None:
        for _ in self._body():  # a client that still sends would miss the answer
            pass
        body = b'{"errors":[{"code":"UNKNOWN","message":"injected by a test"}]}'
        self.send_response(status)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _hand_on(self, asked: Asked) -> None:
        """Ask the registry; without an answer from it the client sees a reset."""
        registry = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream, timeout=60)
        cut = asked.fault == "cut"
        try:
            self._send_head(registry)
            if cut and self._has_body():
                self._cut_short(registry)
                return
            self._send_body(registry)
            response = registry.getresponse()
            self.proxy.answered(asked, response.status)
            if asked.fault == "lost":
                self._reset()
            else:
                self._answer(response, cut=cut)
        except (OSError, http.client.HTTPException):
            self._reset()
        finally:
            registry.close()

    def _send_head(self, registry: http.client.HTTPConnection) -> None:
        registry.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _OF_A_CONNECTION:
                registry.putheader(name, value)
        registry.putheader("Connection", "close")
        registry.endheaders()

    def _send_body(self, registry: http.client.HTTPConnection) -> None:
        """Send it all; a registry that stops reading has something to say."""
        pieces = self._body()
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                registry.send(self._framed(piece))
            if self._is_chunked():
                registry.send(b"0\r\n\r\n")
        for _ in pieces:
            pass

    def _cut_short(self, registry: http.client.HTTPConnection) -> None:
        """Send half of the body's first piece, and reset both connections."""
        piece = next(self._body())
        framed = self._framed(piece)
        registry.send(framed[: len(framed) - len(piece) // 2 - 1])
        reset_on_close(registry.sock)
        self._reset()

    def _answer(self, response: http.client.HTTPResponse, *, cut: bool) -> None:
        length = response.getheader("Content-Length")
        whole = response.read() if length is None else None
        head = self._answers_head(response, None if whole is None else len(whole))
        if cut:
            said = head + (response.read() if whole is None else whole)
            # Of an answer with a body half the body, of another half the head.
            self.wfile.write(
                said[: (len(said) + len(head)) // 2 if said != head else len(head) // 2]
            )
            self._reset()
            return
        self.wfile.write(head + (whole or b""))
        while piece := response.read(_PIECE):
            self.wfile.write(piece)

    def _answers_head(self, response: http.client.HTTPResponse, length: int | None) -> bytes:
        """Return status line and headers; ``length`` is set where the registry did not tell it."""
        lines = [f"HTTP/1.1 {response.status} {response.reason}"]
        for name, value in response.getheaders():
            if name.lower() not in {*_OF_A_CONNECTION, "transfer-encoding"}:
                lines.append(f"{name}: {value}")
        if length is not None and response.status != HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {length}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _has_body(self) -> bool:
        return self._is_chunked() or self.headers.get("Content-Length", "0") != "0"

    def _is_chunked(self) -> bool:
        return self.headers.get("Transfer-Encoding", "").lower() == "chunked"

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(piece), piece) if self._is_chunked() else piece

    def _body(self) -> Iterator[bytes]:
        """Yield what the client sends, in pieces; nothing a second time."""
        if not self._is_chunked():
            yield from self._read(int(self.headers.get("Content-Length", "0")))
            return
        while size := self._chunk():
            yield from self._read(size)
            self.rfile.readline()
        self.rfile.readline()  # after the last; nobody sends trailers

    def _chunk(self) -> int:
        line = self.rfile.readline()
        if not line:  # the client has gone
            raise ConnectionResetError
        return int(line.split(b";")[0], 16)

    def _read(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.rfile.read(min(size, _PIECE))
            if not piece:
                raise ConnectionResetError
            size -= len(piece)
            yield piece
