"""A registry for what is measured: Debian's docker-registry on loopback, empty at every start."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import MissingError

START_SECONDS = 30.0


@dataclass
class Registry:
    """A registry on ``port`` that keeps what it holds below ``folder``."""

    program: str
    folder: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def host(self) -> str:
        """As in the name of an image."""
        return f"127.0.0.1:{self.port}"

    @property
    def stored(self) -> int:
        """The bytes of all blobs that it holds."""
        return sum(path.stat().st_size for path in self.folder.rglob("data"))

    def empty(self) -> None:
        """Throw away what it holds, and start it anew."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        settings = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self.folder)}},
            "http": {"addr": self.host},
        }
        path = self.folder.with_suffix(".json")  # JSON is YAML
        path.write_text(json.dumps(settings), encoding="utf-8")
        log = self.folder.with_suffix(".log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [self.program, "serve", str(path)], stdout=log, stderr=log
            )
        self._wait()

    def stop(self) -> None:
        """End its process."""
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise MissingError(f"the registry did not start; see {self.folder.with_suffix('.log')}")


@contextmanager
def own_registry(folder: Path) -> Iterator[Registry]:
    """Give an empty registry.

    Raises:
        MissingError: the program is not there.

    """
    program = shutil.which("docker-registry")
    if program is None:
        raise MissingError("there is no docker-registry; it is the Debian package of that name")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    registry = Registry(program, folder, port)
    try:
        registry.empty()
        yield registry
    finally:
        registry.stop()
        shutil.rmtree(folder, ignore_errors=True)
