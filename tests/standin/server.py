"""Serves a folder to builds over plain HTTP."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class StandInServer:
    """A server at work, on the given address and on loopback; ``asked`` are paths it gave."""

    address: str
    port: int
    asked: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"


@contextmanager
def serve(folder: Path, address: str = _LOOPBACK, port: int = 0) -> Iterator[StandInServer]:
    """Serve ``folder``/www as long as the block lasts; a port of 0 becomes a free one."""
    asked: set[str] = set()
    handler = partial(_Handler, asked, directory=str(folder / "www"))
    with ExitStack() as stack:
        for listen in dict.fromkeys((address, _LOOPBACK)):
            server = stack.enter_context(_Server((listen, port), handler))
            port = server.server_address[1]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        yield StandInServer(address, port, asked)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, asked: set[str], *arguments: Any, directory: str) -> None:
        self._asked = asked
        super().__init__(*arguments, directory=directory)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002
        """Remember what was given."""
        if code == HTTPStatus.OK:
            self._asked.add(self.path)

    def list_directory(self, path: str | os.PathLike[str]) -> None:  # noqa: ARG002
        """Answer as the sites do: only files are served."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def guess_type(self, path: str | os.PathLike[str]) -> str:  # noqa: ARG002
        """Return one type for all: a client takes a file as it is."""
        return "application/octet-stream"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
