"""An engine for one test, to be filled up, stopped and killed, apart from any other engine.

Its data lies on a tmpfs: shrinking that makes a full disk.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from imgbuild.core.process import dies_with_parent
from support.small_disk import SmallDisk, small_disk
from support.waiting import processes, wait_for

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

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

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
        wait_for(self._has_begun, START_SECONDS)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal; SIGKILL leaves its containers running."""
        if self.process:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None

    def close(self) -> None:
        with suppress(AssertionError):
            self.disk.empty()
        self.stop()
        for pid in self._leftovers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(self._is_unmounted)

    def _leftovers(self) -> list[int]:
        """Return containerd and its shims, whose options name this engine, and their children."""
        found = processes(f"{self.folder}/run/containerd")
        for pid in found:
            with suppress(OSError):  # it ended meanwhile
                threads = [*Path(f"/proc/{pid}").glob("task/*/children")]
                children = " ".join(path.read_text(encoding="ascii") for path in threads)
                found += [int(child) for child in children.split() if int(child) not in found]
        return found

    def _has_begun(self) -> bool:
        log = (self.folder.parent / "dockerd.log").read_text(errors="replace")
        assert self.process
        assert self.process.poll() is None, log[-3000:]
        command = ["docker", "--host", self.host, "version"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
        return done.returncode == 0

    def _is_unmounted(self) -> bool:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        places = [line.split()[1] for line in mounts]
        left = [one for one in places if f"{one}/".startswith(f"{self.folder}/")]
        for mount in reversed(left):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        return not left


@contextmanager
def own_dockerd(*options: str) -> Iterator[OwnDockerd]:
    """Give a running engine with options of dockerd's; it and its data are gone afterwards."""
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
