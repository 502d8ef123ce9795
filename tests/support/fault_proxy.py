"""A proxy before a plain server that counts requests, lets chosen ones fail, or adds a path.

The answers of a registry lead back through it: a registry makes its `Location` from the `Host` that
the client asked for, which the proxy hands on. Notebook servers and clusters show TensorBoard under
a path: `https://host/proxy/6006/`.
"""

import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: `500` and `429` are answers that the registry never gave; `reset` ends the connection before the
#: registry sees the request, `lost` after the registry has answered it.
FAULTS = ("500", "429", "reset", "lost")
_BODY = b'{"errors":[{"code":"UNKNOWN","message":"made by a test"}]}'
_TLS_HANDSHAKE = b"\x16"
#: Headers of one connection, which are not handed on (RFC 9110, 7.6.1), and of the framing.
_NOT_HANDED_ON = {"connection", "keep-alive", "expect", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class ProxiedRequest:
    number: int
    method: str
    path: str

    @property
    def written(self) -> str:
        """The tag or digest that it puts a manifest under."""
        return self.path.partition("/manifests/")[2] if self.method == "PUT" else ""


@dataclass
class Traffic:
    """The requests to one repository; ``fault`` returns what happens to each: of FAULTS, or ""."""

    requests: list[ProxiedRequest] = field(default_factory=list)
    fault: Callable[[ProxiedRequest], str] = lambda _: ""


class FaultProxy(ThreadingHTTPServer):
    """``traffic`` is by repository; only what is below the path ``prefix`` is served."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, upstream: int, prefix: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.upstream, self.prefix = upstream, prefix
        self.traffic: dict[str, Traffic] = {}
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def count(self, method: str, path: str) -> str:
        with self._lock:
            known = (name for name in self.traffic if path.startswith(f"/v2/{name}/"))
            traffic = self.traffic.get(next(known, ""))
            if traffic is None:
                return ""
            request = ProxiedRequest(len(traffic.requests) + 1, method, path)
            traffic.requests.append(request)
        return traffic.fault(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients of these tests hang up."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy

    def handle(self) -> None:
        """Turn a client away that tries TLS first, as a plain registry does."""
        with suppress(OSError):
            if self.connection.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
                self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                return
            super().handle()

    def do_any(self) -> None:
        body = b"".join(self._chunks())
        fault = self.server.count(self.command, self.path)
        if not self.path.startswith(f"{self.server.prefix}/"):
            self.send_error(404)
            return
        if fault in {"500", "429"}:
            self._answer(int(fault), [("Content-Type", "application/json")], _BODY)
            return
        if fault != "reset":
            registry = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
            with suppress(OSError, http.client.HTTPException):
                path = self.path.removeprefix(self.server.prefix)
                registry.request(self.command, path, body, self._headers(len(body)))
                response = registry.getresponse()
                content = response.read()
                registry.close()
                if fault != "lost":
                    self._answer(response.status, response.getheaders(), content)
                    return
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_any  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""

    def _headers(self, length: int) -> dict[str, str]:
        kept = {n: v for n, v in self.headers.items() if n.lower() not in _NOT_HANDED_ON}
        sent = {"Content-Length": str(length)} if self.command in {"POST", "PUT", "PATCH"} else {}
        return {**kept, **sent}

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        """Hand an answer on; that to HEAD says the length of what it leaves out."""
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in _NOT_HANDED_ON:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")

    def _chunks(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length", "0")))
            return
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()  # after the last chunk


@contextmanager
def fault_proxy(upstream: int, prefix: str = "") -> Iterator[FaultProxy]:
    """Give a proxy before the plain server at a port of loopback."""
    with FaultProxy(upstream, prefix) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
        yield proxy
        proxy.shutdown()
