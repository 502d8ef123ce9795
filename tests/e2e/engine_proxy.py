"""A socket before the engine's, on which something is done when a request comes."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CHUNK = 1 << 16


@contextmanager
def engine_proxy(
    host: str, folder: Path, on_request: Callable[[bytes, Callable[[], None]], None]
) -> Iterator[str]:
    """Give the address of a socket in ``folder``, by which the engine at ``host`` is reached.

    ``on_request`` gets each piece that a client sends, and what hands it on.
    """
    place = folder / "engine.sock"

    def pump(source: socket.socket, target: socket.socket, *, asked: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if asked:
                    on_request(data, lambda data=data: target.sendall(data))  # type: ignore[misc]
                else:
                    target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def join(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as engine:
            engine.connect(host.removeprefix("unix://"))
            ends = {"target": pump, "args": (client, engine), "kwargs": {"asked": True}}
            asking = threading.Thread(**ends, daemon=True)  # type: ignore[arg-type]
            asking.start()
            pump(engine, client, asked=False)
            asking.join()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=join, args=(client,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(64)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"unix://{place}"
