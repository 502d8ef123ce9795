"""The engine that imgbuild starts: its own data, its own socket, apart from any other.

Nothing of it is shared with an engine that the distribution's service may start: not the data
folder, not the socket, not the configuration file, not the namespace in a system-wide containerd.
"""

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from imgbuild.doctor import processes

#: Further options for dockerd, such as ``--bip=10.200.0.1/24`` or ``--storage-driver=vfs``.
OPTIONS_VARIABLE = "IMGBUILD_DOCKERD_OPTIONS"
_NAMESPACE = "imgbuild"


@dataclass(frozen=True)
class OwnEngine:
    """Where everything of imgbuild's own engine is."""

    state: Path = Path("/var/lib/imgbuild")
    run: Path = Path("/run/imgbuild")

    @property
    def host(self) -> str:
        """The address of its socket."""
        return f"unix://{self.run / 'docker.sock'}"

    @property
    def pidfile(self) -> Path:
        """Written by dockerd itself."""
        return self.run / "docker.pid"

    @property
    def log(self) -> Path:
        """What dockerd says, of its last start."""
        return self.state / "docker.log"

    @property
    def data_root(self) -> Path:
        """Its images and caches; they outlive it."""
        return self.state / "docker"

    @property
    def config(self) -> Path:
        """Its own configuration file, so that /etc/docker/daemon.json does not count."""
        return self.state / "daemon.json"

    def command(self, dockerd: str, environment: Mapping[str, str] = os.environ) -> list[str]:
        """Return the command line of this engine."""
        return [
            dockerd,
            f"--data-root={self.data_root}",
            f"--exec-root={self.run / 'docker'}",
            f"--host={self.host}",
            f"--pidfile={self.pidfile}",
            f"--config-file={self.config}",
            # A system-wide containerd is used if it runs; the names keep its content apart.
            f"--containerd-namespace={_NAMESPACE}",
            f"--containerd-plugins-namespace={_NAMESPACE}-plugins",
            *extra_options(environment),
        ]

    def pid(self) -> int | None:
        """Return the process of this engine, or ``None`` if it does not run.

        A pidfile that a reboot or a kill left behind may name a process of someone else.
        """
        with suppress(OSError, ValueError):
            pid = int(self.pidfile.read_text(encoding="ascii"))
            return pid if self.is_own(processes.command_line(pid)) else None
        return None

    def is_own(self, words: tuple[str, ...]) -> bool:
        """Whether this command line is one that :meth:`command` gave."""
        return is_dockerd(words) and f"--data-root={self.data_root}" in words

    def leftovers(self) -> list[int]:
        """Return what is left of a dead engine: its containerd, its shims, their containers."""

        def is_left(words: tuple[str, ...]) -> bool:
            name = Path(words[0]).name if words else ""
            inside = any(word.startswith(f"{self.run}/docker/") for word in words)
            return inside and (name == "containerd" or name.startswith("containerd-shim"))

        return processes.with_descendants(processes.find_processes(is_left))


def is_dockerd(words: tuple[str, ...]) -> bool:
    """Whether a command line is that of an engine."""
    return bool(words) and Path(words[0]).name == "dockerd"


def extra_options(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the options that the user adds to the engine's own."""
    return shlex.split(environment.get(OPTIONS_VARIABLE, ""))
