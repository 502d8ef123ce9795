"""A registry of a test's own: Debian's docker-registry on loopback, to be stopped and filled up.

It is plain, or behind TLS with a CA of its own, or wants a password, or both; what it holds lies in
a folder and outlives a stop.
"""

import atexit
import ctypes
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from imgbuild.process import dies_with_parent

START_SECONDS = 30
#: Below the ports that Linux gives to outgoing connections (ip_local_port_range starts at 32768),
#: so that a port that was given up for a while is still free.
_PORTS = range(20000, 32000)
#: The parent with which a registry dies is a thread: one that lasts as long as the tests.
_STARTER = ThreadPoolExecutor(1)
_BCRYPT_COST = "04"  # the least: a password is hashed at each request
_BCRYPT_LETTERS = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_INSTALL = "These tests need docker-registry: install it (apt-get install docker-registry); {}"
_ONE_AT_A_TIME = threading.Lock()  # crypt(3) has one buffer for its results


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
        """As in the name of an image: address and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.ca else 'http'}://{self.host}"

    @property
    def log_file(self) -> Path:
        return self.folder / "registry.log"

    def start(self) -> None:
        """Start it on its port with what it held, and return when it answers."""
        config = self.folder / "config.yml"
        config.write_text(json.dumps(self._config()), encoding="utf-8")  # JSON is YAML
        with self.log_file.open("ab") as log:
            self.process = _STARTER.submit(
                subprocess.Popen,
                dies_with_parent([docker_registry(), "serve", str(config)]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal; what it holds stays."""
        if self.process:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def set_login(self, user: str, password: str) -> None:
        """Let this password count from now on, and no other; a running registry sees it."""
        self.login = (user, password)
        written = self.folder / "htpasswd.new"
        written.write_text(f"{user}:{_bcrypt(password)}\n", encoding="utf-8")
        # It is read again when it is newer by the clock of files.
        with suppress(FileNotFoundError):
            before = (self.folder / "htpasswd").stat().st_mtime_ns
            os.utime(written, ns=(before + 10**9, max(before + 10**9, time.time_ns())))
        written.replace(self.folder / "htpasswd")

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")[-3000:]

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
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def own_registry(
    folder: Path,
    *,
    tls: bool = False,
    login: tuple[str, str] | None = None,
    storage: Path | None = None,
) -> Iterator[OwnRegistry]:
    """Give a running registry; it does not run afterwards.

    ``login`` is a user and a password; ``storage`` a folder for what it holds, such as the one of
    :func:`small_disk.small_disk`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ca = _certificates(folder) if tls else None
    registry = OwnRegistry(folder, storage or folder / "data", free_port(), login, ca)
    if login:
        registry.set_login(*login)
    try:
        registry.start()
        yield registry
    finally:
        registry.stop(signal.SIGKILL)


def free_port() -> int:
    """Return a free port of loopback that no connection will take."""
    for port in random.sample(_PORTS, 100):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


@cache
def docker_registry() -> str:
    """Return the path of docker-registry, unpacked from Debian's package if not installed.

    Where it cannot be had, tests fail: what publishes images is not to be taken for tested.
    """
    installed = shutil.which("docker-registry")
    if installed:
        return installed
    if not shutil.which("apt-get"):
        pytest.fail(_INSTALL.format("there is no apt-get to fetch it with"), pytrace=False)
    kept = TemporaryDirectory(prefix="imgbuild-registry-")
    atexit.register(kept.cleanup)
    folder = Path(kept.name)
    folder.chmod(0o755)  # apt-get fetches as another user
    download = ["apt-get", "-qq", "download", "docker-registry"]
    fetched = subprocess.run(download, cwd=folder, check=False, capture_output=True, text=True)
    if fetched.returncode:
        said = " ".join(fetched.stderr.split())
        pytest.fail(_INSTALL.format(f"apt-get cannot fetch it: {said}"), pytrace=False)
    (package,) = folder.glob("docker-registry_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    return str(folder / "root" / "usr" / "bin" / "docker-registry")


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
    """Return the hash that docker-registry wants, by libcrypt: Python has none since 3.13."""
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.argtypes, crypt.restype = (ctypes.c_char_p, ctypes.c_char_p), ctypes.c_char_p
    salt = "".join(secrets.choice(_BCRYPT_LETTERS) for _ in range(22))
    with _ONE_AT_A_TIME:
        hashed: bytes | None = crypt(password.encode(), f"$2b${_BCRYPT_COST}${salt}".encode())
    assert hashed
    assert hashed.startswith(b"$2b$"), "libcrypt knows no bcrypt"
    return hashed.decode()
