"""A registry of a test's own: Debian's docker-registry on loopback, to be stopped and filled up.

It is plain, or behind TLS with a CA of its own, or wants a password, or both; what it holds lies in
a folder and outlives a stop.
"""

import json
import random
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from imgbuild.core.process import dies_with_parent
from support.debian_program import unpacked
from support.waiting import wait_for

START_SECONDS = 30
#: Below the ports that Linux gives to outgoing connections (ip_local_port_range starts at 32768),
#: so that a port that was given up for a while is still free.
_PORTS = range(20000, 32000)
#: The parent with which a registry dies is a thread: one that lasts as long as the tests.
_STARTER = ThreadPoolExecutor(1)
#: The one hash that docker-registry knows and Python does not; at the least cost, since a password
#: is hashed at each request.
_BCRYPT = ("perl", "-e", "print crypt($ARGV[0], '$2b$04$' . $ARGV[1])")


@dataclass
class OwnRegistry:
    """A registry whose configuration, log and (unless told) content are below ``folder``."""

    folder: Path
    storage: Path
    port: int
    login: tuple[str, str] | None
    ca: Path | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.ca else 'http'}://{self.host}"

    def start(self) -> None:
        """Start it on its port with what it held, and return when it answers."""
        with (self.folder / "registry.log").open("ab") as log:
            self.process = _STARTER.submit(
                subprocess.Popen,
                dies_with_parent([*self.command()]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()
        wait_for(self._answers, START_SECONDS)

    def command(self) -> Sequence[str]:
        config = self.folder / "config.yml"
        config.write_text(json.dumps(self._config()), encoding="utf-8")  # JSON is YAML
        return [docker_registry(), "serve", str(config)]

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Start it, and end it however the block ends."""
        try:
            self.start()
            yield self
        finally:
            self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal; what it holds stays."""
        if self.process:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def _config(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(self.storage)},
                "delete": {"enabled": True},
            },
            "http": {"addr": self.host, "secret": "any, but the same after a restart"},
        }
        if self.ca:
            certificate, key = self.folder / "server.pem", self.folder / "server.key"
            found["http"]["tls"] = {"certificate": str(certificate), "key": str(key)}
        if self.login:
            path = str(self.folder / "htpasswd")
            found["auth"] = {"htpasswd": {"realm": "imgbuild's tests", "path": path}}
        return found

    def _answers(self) -> bool:
        assert self.process
        assert self.process.poll() is None, (self.folder / "registry.log").read_text()[-3000:]
        with closing(socket.socket()) as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def own_registry(
    folder: Path,
    *,
    tls: bool = False,
    login: tuple[str, str] | None = None,
    storage: Path | None = None,
) -> Iterator[OwnRegistry]:
    """Give a running registry; ``login`` is a user and a password."""
    folder.mkdir(parents=True, exist_ok=True)
    ca = _certificates(folder) if tls else None
    registry = OwnRegistry(folder, storage or folder / "data", free_port(), login, ca)
    if login:
        user, password = login
        (folder / "htpasswd").write_text(f"{user}:{_bcrypt(password)}\n", encoding="utf-8")
    with registry.running():
        yield registry


def free_port() -> int:
    """Return a free port of loopback that no connection will take."""
    for port in random.sample(_PORTS, 100):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def docker_registry() -> str:
    """Return the path of docker-registry, of Debian's package if not installed; else tests fail."""
    name = "docker-registry"
    return shutil.which(name) or str(unpacked(name) / "usr" / "bin" / name)


def _certificates(folder: Path) -> Path:
    """Write a CA and the server's certificate for 127.0.0.1 and localhost; return the CA's path."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    new = ("openssl", "req", "-x509", "-nodes", *curve, "-days", "2")
    authority = ("-subj", "/CN=imgbuild's tests", "-keyout", "ca.key", "-out", "ca.pem")
    server = (
        *("-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-keyout", "server.key", "-out", "server.pem"),
    )
    for options in (authority, server):
        subprocess.run([*new, *options], cwd=folder, check=True, capture_output=True)
    return folder / "ca.pem"


def _bcrypt(password: str) -> str:
    salt = secrets.token_hex(11)
    done = subprocess.run([*_BCRYPT, password, salt], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("$2b$"), "this machine's libcrypt knows no bcrypt"
    return done.stdout
