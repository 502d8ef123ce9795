"""A registry behind HTTP, on loopback and in this process, with faults that a test chooses."""

import json
import socket
import struct
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from faulty_server import LoopbackServer, QuietHandler, serving
from memory_registry import MemoryRegistry

from imgbuild.errors import CheckFailedError

PATH = "team/app"


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
    are told. ``page`` is the number of tags an answer lists; ``absolute`` makes upload addresses
    absolute; ``elsewhere`` is the site that blobs are redirected to.
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
        self.page = 1000
        self.absolute = False
        self.elsewhere = ""
        self.tells_digests = True
        self.uploads = 0
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


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RegistryServer

    def do_GET(self) -> None:
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
            self._send(200)
        elif server.wanted and asked.authorization not in server.wanted:
            self._send(401, {"WWW-Authenticate": server.challenge}, b'{"errors": []}')
        else:
            self._answer(asked)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

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
            self._send(200, {"Content-Length": "1000"}, b'{"half of')
            self.close_connection = True
        else:
            self._send(fault.status, fault.headers, fault.body)

    def _answer(self, asked: Asked) -> None:
        kind, _, rest = urlsplit(asked.path).path.removeprefix(f"/v2/{PATH}/").partition("/")
        try:
            getattr(self, f"_{kind}")(asked, rest)
        except CheckFailedError as error:
            code = "MANIFEST_BLOB_UNKNOWN" if asked.method == "PUT" else "BLOB_UNKNOWN"
            said = {"errors": [{"code": code, "message": str(error)}]}
            self._send(400 if asked.method == "PUT" else 404, {}, json.dumps(said).encode())

    def _manifests(self, asked: Asked, reference: str) -> None:
        store = self.server.store
        if asked.method == "PUT":
            kind = self.headers["Content-Type"]
            digest = store.put_manifest(reference, asked.body, kind)
            self._send(201, {"Docker-Content-Digest": digest})
            return
        found = store.manifest(reference)
        if found and asked.method == "DELETE":
            del store.manifests[found.digest]
            self._send(202)
            return
        if found is None:
            self._send(404, {}, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
            return
        told = {"Docker-Content-Digest": found.digest} if self.server.tells_digests else {}
        self._send(200, {"Content-Type": found.media_type, **told}, found.content)

    def _blobs(self, asked: Asked, rest: str) -> None:
        server = self.server
        if asked.method == "POST":
            server.uploads += 1
            root = f"http://{server.host}" if server.absolute else ""
            location = f"{root}/v2/{PATH}/blobs/uploads/{server.uploads}?_state=s"
            self._send(202, {"Location": location})
        elif asked.method == "PUT":
            (digest,) = parse_qs(urlsplit(asked.path).query)["digest"]
            assert server.store.put_blob(asked.body) == digest
            self._send(201)
        elif server.elsewhere and asked.method == "GET":
            self._send(307, {"Location": f"{server.elsewhere}{asked.path}"})
        else:
            self._send(200, {}, server.store.blob(rest))

    def _tags(self, asked: Asked, _rest: str) -> None:
        query = parse_qs(urlsplit(asked.path).query)
        (last,) = query.get("last", [""])
        tags = [tag for tag in self.server.store.tags() if tag > last]
        page, more = tags[: self.server.page], tags[self.server.page :]
        link = f'</v2/{PATH}/tags/list?last={page[-1]}&n=2>; rel="next"' if more else ""
        content = json.dumps({"name": PATH, "tags": page or None}).encode()
        self._send(200, {"Link": link} if link else {}, content)

    def _send(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def registry_server() -> AbstractContextManager[RegistryServer]:
    """Return a registry that lives as long as the block."""
    return serving(RegistryServer())
