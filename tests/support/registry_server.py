"""A registry behind HTTP, on loopback and in this process, with faults that a test chooses."""

import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from imgbuild.net.authorization import FindCredentials
from imgbuild.net.http import HttpClient, RetryPolicy
from imgbuild.net.repository import parse_repository
from imgbuild.net.repository_client import RegistryClient
from imgbuild.net.sites import Credentials
from support.faulty_server import LoopbackServer, QuietHandler, serving
from support.memory_registry import MemoryRegistry

PATH = "team/app"
LOGIN = Credentials("user", "pass-word-1")
ATTEMPTS = 3


@dataclass(frozen=True)
class Fault:
    """What happens in place of an answer: a status, or ``reset``, or ``cut`` (in the body)."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    reset: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    authorization: str
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {urlsplit(self.path).path.removeprefix(f'/v2/{PATH}')}"


class RegistryServer(LoopbackServer):
    """Answers out of ``store``; ``faults`` come first, each once, by the start of a request's line.

    ``wanted`` are the authorizations that are taken (all if empty), ``challenge`` is what others
    are told. ``absolute`` makes upload addresses absolute; ``elsewhere`` is the site that blobs are
    redirected to.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.store = MemoryRegistry()
        self.asked: list[Asked] = []
        self.faults: list[tuple[str, Fault]] = []
        self.wanted: set[str] = set()
        self.challenge = 'Basic realm="here"'
        #: Answers to questions for a token, the last one for ever.
        self.tokens: list[Fault] = []
        self.absolute = False
        self.elsewhere = ""
        self.tells_digests = True
        #: Those that HTTP was spoken on.
        self.connections: set[object] = set()

    @property
    def name(self) -> str:
        return f"{self.host}/{PATH}"

    def lines(self) -> list[str]:
        """Return what the repository was asked."""
        return [one.line for one in self.asked if one.path.startswith(f"/v2/{PATH}")]

    def fail(self, line: str, *faults: Fault) -> None:
        """Let the next requests whose line begins so fail, one after the other."""
        self.faults += [(line, fault) for fault in faults]


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: RegistryServer

    def do_GET(self) -> None:  # noqa: N802
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        asked = Asked(self.command, self.path, self.headers.get("Authorization") or "", body)
        server = self.server
        server.asked.append(asked)
        server.connections.add(self.client_address)
        fault = self._fault(asked)
        if fault:
            self._fail(fault)
        elif self.path.startswith("/token"):
            form = "application/x-www-form-urlencoded"  # RFC 6749, section 4.4.2
            assert self.headers["Content-Type"] == (form if self.command == "POST" else None)
            self._fail(server.tokens.pop(0) if len(server.tokens) > 1 else server.tokens[0])
        elif not self.path.startswith(f"/v2/{PATH}/"):
            self.respond(200, b"", {})
        elif server.wanted and asked.authorization not in server.wanted:
            self.respond(401, b'{"errors": []}', {"WWW-Authenticate": server.challenge})
        else:
            self._answer(asked)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - http.server calls them

    def _fault(self, asked: Asked) -> Fault | None:
        faults = self.server.faults
        for index, (line, fault) in enumerate(faults):
            if asked.line.startswith(line):
                del faults[index]
                return fault
        return None

    def _fail(self, fault: Fault) -> None:
        if fault.reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
        elif fault.cut:
            self.respond(200, b'{"half of', {"Content-Length": "1000"})
            self.close_connection = True
        else:
            self.respond(fault.status, fault.body, fault.headers)

    def _answer(self, asked: Asked) -> None:
        server, kind = self.server, self.headers.get("Content-Type") or ""
        if server.elsewhere and asked.line.startswith("GET /blobs"):
            self.respond(307, b"", {"Location": f"{server.elsewhere}{asked.path}"})
            return
        found = server.store.answer(asked.method, asked.path, kind, asked.body)
        headers = {**found.headers}
        if server.absolute and "Location" in headers:
            headers["Location"] = f"http://{server.host}{headers['Location']}"
        if not server.tells_digests:
            headers.pop("Docker-Content-Digest", None)
        self.respond(found.status, found.body, headers)


def registry_server() -> AbstractContextManager[RegistryServer]:
    """Return a registry that lives as long as the block."""
    return serving(RegistryServer())


def opened(
    name: str,
    find: FindCredentials = lambda _host: None,
    log: Callable[[str], None] = lambda _text: None,
) -> RegistryClient:
    """Return the real client of a repository, which waits for nothing and gives up soon."""
    http = HttpClient(policy=RetryPolicy(ATTEMPTS, 0.0), log=log, seconds=(2.0, 2.0))
    return RegistryClient(parse_repository(name, "test"), http, find)
