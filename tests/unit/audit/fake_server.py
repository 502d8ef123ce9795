"""A package index and file server on loopback with faults that a test chooses."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes]


class FakeServer:
    """``files`` and ``answers`` by path; ``answers`` come first and get the Range header."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.types: dict[str, str] = {}
        self.answers: dict[str, Callable[[str | None], Answer]] = {}
        self.ranges: list[str] = []

    def answer(self, path: str, wanted: str | None) -> Answer:
        if wanted:
            self.ranges.append(wanted)
        if path in self.answers:
            return self.answers[path](wanted)
        if path not in self.files:
            return 404, {}, b"no"
        content = self.files[path]
        kind = {"Content-Type": self.types.get(path, "application/octet-stream")}
        if wanted is None:
            return 200, kind, content
        return ranged(content, wanted)

    def project(self, name: str, *files: str) -> None:
        """Offer a project's page: each of ``files`` is the attributes of a link, and its text."""
        self.files[f"/simple/{name}/"] = "".join(f"<a {link}</a>\n" for link in files).encode()
        self.types[f"/simple/{name}/"] = "text/html"


def ranged(content: bytes, wanted: str) -> Answer:
    """Return the right answer to a single range."""
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
    assert match, f"not a single range: {wanted}"
    start, end = int(match[1]), min(int(match[2]), len(content) - 1)
    return 206, {"Content-Range": f"bytes {start}-{end}/{len(content)}"}, content[start : end + 1]


@contextmanager
def serving() -> Iterator[FakeServer]:
    """Give a server that answers as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, content = server.answer(self.path, self.headers.get("Range"))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = FakeServer(f"http://127.0.0.1:{http.server_address[1]}")
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        http.shutdown()
