"""An engine of a test's own, to be filled up, stopped and killed; nobody else's is touched.

Its data lies on a tmpfs: a full disk is made by shrinking it, and ended by giving the room back. It
has no bridge and changes no firewall, so that it can run beside other engines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from small_disk import SmallDisk, small_disk

from imgbuild.doctor import processes
from imgbuild.doctor.own_engine import OwnEngine
from imgbuild.process import dies_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What the engine says of its disk; the memory is taken only as it is written.
ROOM = 12 << 30
START_SECONDS = 60
_OPTIONS = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false")


@dataclass
class OwnDockerd:
    """An engine whose data is on ``disk``; ``options`` are dockerd's."""

    disk: SmallDisk
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    _engine: OwnEngine = field(init=False)

    def __post_init__(self) -> None:
        self._engine = OwnEngine(self.folder / "state", self.folder / "run")
        self._engine.state.mkdir()
        self._engine.run.mkdir()
        self._engine.config.write_text("{}", encoding="utf-8")

    @property
    def folder(self) -> Path:
        return self.disk.folder

    @property
    def host(self) -> str:
        return self._engine.host

    def start(self) -> None:
        """Start it, and return when it answers."""
        command = self._engine.command("dockerd", {})
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
        """End it by a signal; after SIGKILL nobody stops its containers."""
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
        for pid in self._engine.leftovers():
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
        return [" ".join(processes.command_line(pid)) for pid in self._engine.leftovers()]

    def _docker(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = ["docker", "--host", self.host, *arguments]
        return subprocess.run(command, capture_output=True, check=False, timeout=60)

    def _mounts(self) -> list[str]:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        places = [line.split()[1] for line in mounts]
        return [one for one in places if f"{one}/".startswith(f"{self.folder}/")]


@contextmanager
def own_dockerd(*options: str) -> Iterator[OwnDockerd]:
    """Give a running engine of one's own; it and its data are gone afterwards.

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
