"""An engine for measuring alone: its own data, socket and bridge; nobody else's cache is touched.

Builds can only be measured cold where the layer cache may be thrown away, and the cache is one for
the whole engine. So these benchmarks start a dockerd of their own. It needs root. While it runs
there is one more bridge on the machine, and three firewall rules that let its containers out; all
of it goes with the engine.
"""

import os
import shutil
import subprocess
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import MissingError
from imgbuild.engine.buildx import find_buildx
from imgbuild.errors import MachineError
from imgbuild.settings import EngineSettings

BRIDGE = "imgbuild-bench"
NETWORK = "10.213.77"
START_SECONDS = 60.0
STOP_SECONDS = 60.0
#: The same for every contestant, as imgbuild sets them: no attestation, and no question.
BUILDX = {
    "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    "BUILDX_METADATA_PROVENANCE": "disabled",
    "BUILDX_BAKE_ENTITLEMENTS_FS": "0",
}
#: The engine's own clearing up would throw away downloads in the middle of a measurement.
CONFIGURATION = '{"builder": {"gc": {"enabled": false}}}\n'


@dataclass(frozen=True)
class Engine:
    """An engine whose caches may be thrown away. ``pid`` is ``None`` if someone else started it."""

    host: str
    buildx: str
    docker: str
    pid: int | None = None

    def ask(self, *words: str) -> str:
        """Return what ``docker`` prints.

        Raises:
            RuntimeError: it failed; with its last words.

        """
        return _run([self.docker, "--host", self.host, *words])

    def forget_layers(self) -> None:
        """Throw the layer cache away, and keep the cache mounts: downloads stay warm."""
        self.ask_buildx("prune", "--builder=default", "--filter=type=regular", "--all", "--force")

    def ask_buildx(self, *words: str) -> str:
        """Return what ``docker buildx`` prints; RuntimeError if it failed."""
        return _run([self.buildx, *words], {**os.environ, **BUILDX, "DOCKER_HOST": self.host})

    def remove_images(self, keep: str = "imgbuild/base") -> None:
        """Remove all images but those whose repository begins with ``keep``."""
        lines = self.ask("image", "ls", "--all", "--format", "{{.ID}} {{.Repository}}").splitlines()
        found = [line.split() for line in lines]
        gone = sorted({image for image, name in found if not name.startswith(keep)})
        if gone:
            self.ask("image", "rm", "--force", *gone)

    def cold(self) -> None:
        """Bring about the start of a cold build: no image, no layer, downloads warm."""
        self.remove_images()
        self.forget_layers()


def client() -> str:
    """Return a docker client.

    Raises:
        MissingError: there is none.

    """
    for path in ("/usr/bin/docker", shutil.which("docker")):
        if path and os.access(path, os.X_OK):
            return path
    raise MissingError("there is no docker client; build/setup/engine.sh installs one")


def buildx_program() -> str:
    """Return the buildx program; MissingError if there is none."""
    try:
        return str(find_buildx(EngineSettings()).path)
    except MachineError as error:
        raise MissingError(str(error)) from error


def add_options(parser: ArgumentParser) -> None:
    """Add the options that name an engine."""
    parser.add_argument(
        "--engine", metavar="ADDRESS", help="an engine to use; its images and cache are removed"
    )
    parser.add_argument(
        "--engine-pid", type=int, metavar="PID", help="its process, to tell its processor time"
    )


@contextmanager
def measuring_engine(work: Path, options: Namespace) -> Iterator[Engine]:
    """Give an engine that may be emptied: the options', or one that is started and removed again.

    Raises:
        MissingError: none can be started here.

    """
    if options.engine:
        yield Engine(options.engine, buildx_program(), client(), options.engine_pid)
        return
    _require()
    folder = work / "engine"
    folder.mkdir()
    # A socket's path has at most 107 characters, and TMPDIR may be long.
    socket = Path(f"/run/imgbuild-bench-{os.getpid()}.sock")
    process: subprocess.Popen[bytes] | None = None
    try:
        for command in _network_commands("add"):
            _run(command)
        process = _launch(folder, socket)
        engine = Engine(f"unix://{socket}", buildx_program(), client(), process.pid)
        _wait(engine, process, folder)
        yield engine
    finally:
        if process:
            _stop(process)
        for command in _network_commands("delete"):
            subprocess.run(command, capture_output=True, check=False)
        socket.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _require() -> None:
    if os.geteuid() != 0:
        raise MissingError(
            "an engine to measure with is started by root only; name one with --engine ADDRESS "
            "(its images and build cache are thrown away)"
        )
    missing = [name for name in ("dockerd", "ip", "iptables") if not shutil.which(name)]
    if missing:
        raise MissingError(f"there is no {', '.join(missing)} on this machine")
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        raise MissingError(
            f"there is a network bridge {BRIDGE} already: another measurement runs, or one was "
            f"killed (then: ip link delete {BRIDGE})"
        )


def _network_commands(what: str) -> list[list[str]]:
    """Return the commands that make the bridge and let it out, or that take it away again."""
    subnet = f"{NETWORK}.0/24"
    flag = "-I" if what == "add" else "-D"
    rules = [
        f"iptables -t nat {flag} POSTROUTING -s {subnet} ! -o {BRIDGE} -j MASQUERADE".split(),
        ["iptables", flag, "FORWARD", "-i", BRIDGE, "-j", "ACCEPT"],
        ["iptables", flag, "FORWARD", "-o", BRIDGE, "-j", "ACCEPT"],
    ]
    if what != "add":
        return [*rules, ["ip", "link", "delete", BRIDGE]]
    return [
        ["ip", "link", "add", BRIDGE, "type", "bridge"],
        ["ip", "address", "add", f"{NETWORK}.1/24", "dev", BRIDGE],
        ["ip", "link", "set", BRIDGE, "up"],
        *rules,
    ]


def _launch(folder: Path, socket: Path) -> "subprocess.Popen[bytes]":
    configuration = folder / "daemon.json"
    configuration.write_text(CONFIGURATION, encoding="ascii")
    command = [
        "dockerd",
        f"--data-root={folder / 'data'}",
        f"--exec-root={folder / 'run'}",
        f"--host=unix://{socket}",
        f"--pidfile={folder / 'pid'}",
        f"--config-file={configuration}",
        f"--bridge={BRIDGE}",
        "--iptables=false",
        "--ip6tables=false",
        "--containerd-namespace=imgbuild-bench",
        "--containerd-plugins-namespace=imgbuild-bench-plugins",
    ]
    with (folder / "log").open("wb") as log:
        # A session of its own: Ctrl-C reaches it only by way of _stop.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _wait(engine: Engine, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    limit = time.monotonic() + START_SECONDS
    command = [engine.docker, "--host", engine.host, "version"]
    while subprocess.run(command, capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > limit:
            lines = (folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
            raise MissingError(f"the engine does not start: {' | '.join(lines[-4:])}")
        time.sleep(0.2)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _run(command: Sequence[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:6])} …: {(done.stderr or done.stdout)[-600:]}")
    return done.stdout
