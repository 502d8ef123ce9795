"""A socket that listens in another process's network namespace, and is served from this one.

A socket belongs to the namespace of the thread that made it, for ever: setns(2), socket(7).
"""

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_SIOCSIFFLAGS = 0x8914  # linux/sockios.h
_IFF_UP = 0x1  # linux/if.h
#: Gets each piece that a client sends, and what hands it on.
OnPiece = Callable[[bytes, Callable[[], None]], None]


@contextmanager
def forwarded(port: int, pid: int) -> Iterator[None]:
    """Let who is in a process's namespace reach this one's 127.0.0.1:port at the same address."""
    with ThreadPoolExecutor(1) as thread:  # it ends, and with it the change of namespace
        listening = thread.submit(_listen_in, port, pid).result()
    with served(listening, lambda: socket.create_connection(("127.0.0.1", port))):
        yield


@contextmanager
def served(
    listening: socket.socket,
    connect: Callable[[], socket.socket],
    on_piece: OnPiece = lambda _, hand_on: hand_on(),
) -> Iterator[None]:
    """Join who connects to a socket with what ``connect`` gives, as long as the block lasts."""

    def join(inside: socket.socket) -> None:
        with inside, suppress(OSError), connect() as outside:
            back = threading.Thread(target=_pump, args=(outside, inside), daemon=True)
            back.start()
            _pump(inside, outside, on_piece)
            back.join()

    def serve() -> None:
        with suppress(OSError):  # it is closed
            while True:
                inside, _ = listening.accept()
                threading.Thread(target=join, args=(inside,), daemon=True).start()

    with listening:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept


def _pump(
    source: socket.socket,
    target: socket.socket,
    on_piece: OnPiece = lambda _, hand_on: hand_on(),
) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            on_piece(piece, partial(target.sendall, piece))
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _listen_in(port: int, pid: int) -> socket.socket:
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
    return socket.create_server(("127.0.0.1", port), backlog=128)
