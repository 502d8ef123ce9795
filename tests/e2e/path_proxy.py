"""A proxy that serves one server under a path, and hands requests on without it.

Notebook servers and clusters show TensorBoard so: `https://host/proxy/6006/`.
"""

import http.client
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PREFIX = "/proxy"


@contextmanager
def path_proxy(port: int) -> Iterator[str]:
    """Give the address under which the server on this machine's `port` is served."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            upstream.request("GET", self.path.removeprefix(PREFIX))
            response = upstream.getresponse()
            body = response.read()
            self.send_response(response.status)
            for name in ("Content-Type", "Content-Encoding", "Content-Security-Policy"):
                if value := response.getheader(name):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            upstream.close()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Say nothing: the browser's log has it all."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{PREFIX}/"
    finally:
        server.shutdown()
        server.server_close()
