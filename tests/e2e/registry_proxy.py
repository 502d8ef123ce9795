"""A proxy before a plain registry that writes down every request and lets chosen ones go wrong.

All of a registry's answers lead back through it: the registry builds its `Location` from the
`Host` that the client asked for, and the proxy hands that on. An engine in a network namespace of
its own (`own_dockerd.py`) reaches it at the same address, see `RegistryProxy.listen_in`.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from network_namespace import listening_socket
from own_registry import free_port
from proxied_connection import ProxiedConnection, reset_on_close

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What can happen to a request. `500` and `429` are answers that the registry never gave. `reset`
#: resets the connection before the registry sees the request, `cut` in the middle of the request's
#: body (or of the answer, where the request has none), `lost` after the registry has answered.
#: `die` closes every connection and refuses new ones, until `heal`.
FAULTS = ("500", "429", "reset", "cut", "lost", "die")


@dataclass(frozen=True)
class Asked:
    """A request, the ``number``-th; ``status`` is the registry's answer, if it was asked."""

    number: int
    method: str
    path: str
    fault: str | None = None
    status: int | None = None

    @property
    def manifest(self) -> str | None:
        """The tag or digest whose manifest this is about."""
        _, found, reference = self.path.partition("/manifests/")
        return reference if found else None


@dataclass
class RegistryProxy:
    """``before`` is called with every request before anything happens to it.

    ``after_manifest`` is called when the registry has taken a manifest, before its client knows and
    before it takes another; what it raises is kept in ``broken``.
    """

    upstream: int
    port: int = field(default_factory=free_port)
    asked: list[Asked] = field(default_factory=list)
    broken: list[Exception] = field(default_factory=list)
    before: Callable[[Asked], None] | None = None
    after_manifest: Callable[[Asked], None] | None = None
    manifests: threading.Lock = field(default_factory=threading.Lock)
    _fault: tuple[str, range] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _places: list[int | None] = field(default_factory=lambda: [None])
    _listening: list[socket.socket] = field(default_factory=list)
    _open: set[socket.socket] = field(default_factory=set)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def listen_in(self, pid: int) -> None:
        """Listen also on the loopback of a process's network namespace; kept after `heal`."""
        self._places.append(pid)
        self._listen(pid)

    @contextmanager
    def listening_in(self, pid: int) -> Iterator[None]:
        """Listen there for the block: the process may be gone afterwards."""
        self.listen_in(pid)
        try:
            yield
        finally:
            self._places.remove(pid)

    def inject(self, fault: str, at: int, times: int | None = 1) -> None:
        """Count from 1 again; from the ``at``-th on ``times`` requests (None: all) go wrong."""
        assert fault in FAULTS
        self.forget()
        self._fault = (fault, range(at, at + times if times else 1 << 31))

    def forget(self) -> None:
        """Count requests from 1 again, none of which goes wrong."""
        with self._lock:
            self._fault = None
            self.asked.clear()

    def heal(self) -> None:
        """Let no request go wrong any more, and listen again."""
        with self._lock:
            self._fault = None
            if not self._listening:
                for place in self._places:
                    self._listen(place)

    def die(self) -> None:
        """Close every connection, and refuse new ones until `heal`."""
        with self._lock:
            for listening in self._listening:
                with suppress(OSError):
                    listening.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
                listening.close()
            self._listening.clear()
            for connection in self._open:
                reset_on_close(connection)
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)  # its thread closes it

    def note(self, method: str, path: str) -> Asked:
        """Count a request, and tell what will happen to it."""
        with self._lock:
            number = len(self.asked) + 1
            kind, wrong = self._fault or ("", range(0))
            asked = Asked(number, method, path, kind if number in wrong else None)
            self.asked.append(asked)
        if self.before:
            self.before(asked)
        return asked

    def answered(self, asked: Asked, status: int) -> None:
        """Note the registry's answer."""
        done = replace(asked, status=status)
        with self._lock, suppress(ValueError):  # it may be forgotten by now
            self.asked[self.asked.index(asked)] = done
        if self.after_manifest and asked.method == "PUT" and asked.manifest and status < 300:
            try:
                self.after_manifest(done)
            except Exception as wrong:  # noqa: BLE001 - a test's own check
                self.broken.append(wrong)

    def _listen(self, place: int | None) -> None:
        listening = listening_socket(self.port, place)
        self._listening.append(listening)
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):  # it is closed
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)
        try:
            with suppress(OSError):
                ProxiedConnection(connection, self)
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()


@contextmanager
def registry_proxy(upstream: int) -> Iterator[RegistryProxy]:
    """Give a proxy before the plain registry at a port of loopback."""
    proxy = RegistryProxy(upstream)
    proxy.heal()
    try:
        yield proxy
    finally:
        proxy.die()
