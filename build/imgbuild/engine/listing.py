"""The images of an engine on this machine, and what they were made by, without docker-py.

Whether there is anything to do is one question; importing docker-py (and requests) to ask it takes
longer than the answer. Another kind of engine (tcp, ssh) is docker-py's business.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from imgbuild.engine.endpoint import DEFAULT_HOST
from imgbuild.engine.faults import answered_error, engine_error
from imgbuild.errors import ImgbuildError

_SCHEME = "unix://"


def unix_socket(host: str | None) -> Path | None:
    """Return the socket of an engine's address; None where it is no socket of this machine."""
    address = host or DEFAULT_HOST
    return Path(address.removeprefix(_SCHEME)) if address.startswith(_SCHEME) else None


def list_images(path: Path, label: str, host: str | None, seconds: float) -> list[dict[str, Any]]:
    """Return the engine's entries of the images with ``label`` (``key`` or ``key=value``).

    ``seconds`` is the longest silence. Source: Docker Engine API, ImageList; without a version in
    the path an engine speaks its newest.

    Raises:
        MachineError: the engine cannot be reached or does not answer.
        CheckFailedError: it refuses.

    """
    filters = quote(json.dumps({"label": [label]}))
    return _entries(path, f"/images/json?filters={filters}", host, seconds)


def list_history(
    path: Path, image_id: str, host: str | None, seconds: float
) -> list[dict[str, Any]]:
    """Return the engine's entries of what an image was made by, the newest first.

    Source: Docker Engine API, ImageHistory.

    Raises:
        MachineError: the engine cannot be reached or does not answer.
        CheckFailedError: it has no such image.

    """
    return _entries(path, f"/images/{quote(image_id)}/history", host, seconds)


def _entries(path: Path, request: str, host: str | None, seconds: float) -> list[dict[str, Any]]:
    try:
        answer = _get(path, request, host, seconds)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise engine_error(error, host) from error
    return [one for one in answer if isinstance(one, dict)] if isinstance(answer, list) else []


def _get(path: Path, request: str, host: str | None, seconds: float) -> object:
    path.stat()  # an error that names the socket, where connect names nothing
    connection = _Connection(path, seconds)
    try:
        connection.request("GET", request)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise _refusal(response.status, body, host)
    found: object = json.loads(body)
    return found


def _refusal(status: int, body: bytes, host: str | None) -> ImgbuildError:
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    message = said.get("message") if isinstance(said, Mapping) else None
    words = str(message or f"HTTP status {status}").rstrip(".")
    return answered_error(words, host, refused=status < http.client.INTERNAL_SERVER_ERROR)


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket of this machine."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
