"""A socket that listens in another process's network namespace, and is served from this one.

A socket belongs to the namespace of the thread that made it, for ever: setns(2), socket(7).
"""

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_SIOCSIFFLAGS = 0x8914  # linux/sockios.h
_IFF_UP = 0x1  # linux/if.h


@contextmanager
def forwarded(port: int, pid: int) -> Iterator[None]:
    """Let who is in a process's namespace reach this one's 127.0.0.1:port at the same address."""
    with ThreadPoolExecutor(1) as thread:  # it ends, and with it the change of namespace
        made = thread.submit(_listen_in, port, pid).result()
    with made as listening:
        threading.Thread(target=_forward_all, args=(listening, port), daemon=True).start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept


def _forward_all(listening: socket.socket, port: int) -> None:
    with suppress(OSError):  # it is closed
        while True:
            inside, _ = listening.accept()
            threading.Thread(target=_forward_both, args=(inside, port), daemon=True).start()


def _forward_both(inside: socket.socket, port: int) -> None:
    with inside, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as outside:
        back = threading.Thread(target=_forward, args=(outside, inside), daemon=True)
        back.start()
        _forward(inside, outside)
        back.join()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
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
