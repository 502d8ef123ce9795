"""Builders of buildx's driver `remote`: the BuildKit in engines of their own, behind sockets.

``buildx dial-stdio`` joins a socket to an engine's BuildKit, which has no address of its own.
"""

import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.core.settings import EngineSettings
from imgbuild.engine.discovery import find_buildx
from support.own_dockerd import OwnDockerd, own_dockerd

#: With a graph driver, BuildKit writes no archives that another engine loads.
_STORE = "--feature=containerd-snapshotter=true"


@dataclass(frozen=True)
class RemoteBuilder:
    """A builder of this name, and the engine whose BuildKit it is."""

    name: str
    dockerd: OwnDockerd

    def steps(self) -> list[str]:
        command = ["docker", "--host", self.dockerd.host, "buildx", "du", "--verbose"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        lines = (line.partition("Description:") for line in done.stdout.splitlines())
        return [text.strip() for _, found, text in lines if found]


@contextmanager
def remote_builder(name: str, config: Path) -> Iterator[RemoteBuilder]:
    """Give a builder that buildx has in the folder ``config``, its BUILDX_CONFIG."""
    buildx = str(find_buildx(EngineSettings(), None).path)
    with own_dockerd(_STORE) as dockerd, _socket(buildx, dockerd) as address:
        create = [buildx, "create", "--name", name, "--driver", "remote", address]
        environment = {"BUILDX_CONFIG": str(config), "PATH": "/usr/bin:/bin"}
        subprocess.run(create, env=environment, capture_output=True, check=True, timeout=60)
        yield RemoteBuilder(name, dockerd)


@contextmanager
def _socket(buildx: str, dockerd: OwnDockerd) -> Iterator[str]:
    def dial(request: Any) -> None:
        subprocess.run(
            [buildx, "--builder=default", "dial-stdio"],
            env={"DOCKER_HOST": dockerd.host, "PATH": "/usr/bin:/bin"},
            stdin=request,
            stdout=request,
            stderr=subprocess.DEVNULL,
            check=False,
        )

    path = dockerd.folder.parent / "buildkit.sock"
    with _Server(str(path), dial) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, dial: Callable[[Any], None]) -> None:
        super().__init__(path, socketserver.BaseRequestHandler)
        self.dial = dial

    def finish_request(self, request: Any, client_address: object) -> None:
        del client_address
        self.dial(request)
