"""An engine's socket with the HTTP answers of a test; it records its requests."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import UnixStreamServer
from urllib.parse import parse_qs, urlsplit

from support.faulty_server import QuietHandler


@dataclass
class SocketServer:
    """``answers`` are bodies by path, with ``status``; None is of what is not there."""

    path: Path
    answers: dict[str, object] = field(default_factory=dict)
    status: int = 200
    asked: list[tuple[str, Mapping[str, list[str]]]] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"unix://{self.path}"


@contextmanager
def socket_server(path: Path) -> Iterator[SocketServer]:
    """Give a server that listens on ``path`` until the block ends."""
    server = SocketServer(path)

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802
            parts = urlsplit(self.path)
            server.asked.append((parts.path, parse_qs(parts.query)))
            answer = server.answers.get(parts.path, {"message": "no such answer."})
            said = {"message": "no such thing."} if answer is None else answer
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.respond(404 if answer is None else server.status, body, {})

    with UnixStreamServer(str(path), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
