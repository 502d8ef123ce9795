"""An engine for one test, to be filled up, stopped and killed, apart from any other engine.

Its data lies on a tmpfs: shrinking that makes a full disk. It has no bridge and changes no
firewall, so that it can run beside other engines.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from small_disk import SmallDisk, small_disk

from imgbuild.process import dies_with_parent

#: The size that the engine sees; memory is used only as it is written.
ROOM = 12 << 30
START_SECONDS = 60
_OPTIONS = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false")


@dataclass
class OwnDockerd:
    """An engine whose data is on ``disk``; ``options`` are dockerd's."""

    disk: SmallDisk
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        return self.disk.folder

    @property
    def host(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def start(self) -> None:
        """Start it, and return when it answers."""
        (self.folder / "daemon.json").write_text("{}", encoding="utf-8")
        command = [
            "dockerd",
            f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/run",
            f"--host={self.host}",
            f"--pidfile={self.folder}/docker.pid",
            f"--config-file={self.folder}/daemon.json",
            "--containerd-namespace=imgbuild",
            "--containerd-plugins-namespace=imgbuild-plugins",
        ]
        with (self.folder.parent / "dockerd.log").open("ab") as log:
            self.process = subprocess.Popen(
                # In a network namespace of its own: dockerd --bridge=none removes the docker0 of
                # every other engine that it sees.
                dies_with_parent(["unshare", "--net", *command, *_OPTIONS, *self.options]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + START_SECONDS
        while self._docker("version").returncode != 0:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.1)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal; SIGKILL leaves its containers running."""
        if self.process:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None

    def log(self) -> str:
        return (self.folder.parent / "dockerd.log").read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """End it and all that is left of it."""
        with suppress(AssertionError):
            self.disk.empty()
        self.stop()
        for pid in self._leftovers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for _ in range(50):
            if not self._mounts():
                return
            for mount in reversed(self._mounts()):
                subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
            time.sleep(0.1)
        raise AssertionError(f"still mounted: {self._mounts()}")

    def left(self) -> list[str]:
        """Return the command lines that run on behalf of a dead engine."""
        return [_words(pid) for pid in self._leftovers()]

    def _leftovers(self) -> list[int]:
        """Return containerd and its shims, whose options name this engine, and their children."""
        parents = {
            int(entry.name): _parent(entry)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit()
        }
        found = [
            pid
            for pid in parents
            if f"{self.folder}/run/" in _words(pid) and "containerd" in _words(pid).split()[0]
        ]
        for pid in found:
            found += [one for one, parent in parents.items() if parent == pid and one not in found]
        return found

    def _docker(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = ["docker", "--host", self.host, *arguments]
        return subprocess.run(command, capture_output=True, check=False, timeout=60)

    def _mounts(self) -> list[str]:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        places = [line.split()[1] for line in mounts]
        return [one for one in places if f"{one}/".startswith(f"{self.folder}/")]


def _words(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    return ""


def _parent(entry: Path) -> int:
    with suppress(OSError, IndexError):  # it ended meanwhile
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0


@contextmanager
def own_dockerd(*options: str) -> Iterator[OwnDockerd]:
    """Give a running engine; it and its data are gone afterwards.

    ``options`` are dockerd's, such as ``--max-upload-attempts=1``.
    """
    with (
        TemporaryDirectory(prefix="imgbuild-e2e-") as parent,  # a socket's path is a short one
        small_disk(Path(parent) / "d", ROOM) as disk,
    ):
        engine = OwnDockerd(disk, options)
        try:
            engine.start()
            yield engine
        finally:
            engine.close()
