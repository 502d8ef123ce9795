"""Further containers of the image under test: on a network of their own, or started in another way.

They go through the `docker` command, as testinfra's backend does, so the engine is the same. What
a lab starts it removes; what a killed run leaves is found by the label that the first container has
too.
"""

from __future__ import annotations

import subprocess
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import testinfra  # type: ignore[import-untyped]
from container import Container
from docker_command import HOST_SPEC, SECONDS, container_of, docker
from image_labels import inspect
from program_copies import copy_programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container import Host

#: Marks what belongs to a test run: `imgbuild` removes containers and networks with it.
LABEL = "imgbuild.test-of"
#: Where a test run lends the stub of NVIDIA's driver to its first container.
STUB_FOLDER = "/usr/local/nvidia/lib64"
STUB = f"{STUB_FOLDER}/libcuda.so.1"
SLEEP = ("sleep", "infinity")


@dataclass
class Lab:
    """Starts containers of `image`; `first` is the container under test, `name` the test run's.

    Names given to `start` and `network` are short and the caller's own: the engine's are made
    unique, and containers know each other on a network by the short ones.
    """

    image: str
    first: str
    name: str
    needs_stub: bool = False
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _containers: dict[str, str] = field(default_factory=dict)
    _networks: list[str] = field(default_factory=list)

    def start(self, name: str, *options: str, command: Sequence[str] = SLEEP) -> Container:
        """Start a container with options of `docker run`, and give it with the suites' programs.

        It has no network unless an option says so, and `name` as its host name.
        """
        return self._with_programs(self.bare(name, *options, command=command))

    def bare(self, name: str, *options: str, command: Sequence[str] = SLEEP) -> str:
        """Start a container as `start` does, and return its id; nothing is copied into it."""
        network = [] if any(o.startswith("--network") for o in options) else ["--network=none"]
        labels = f"--label={LABEL}={self.name}"
        where = (f"--name=imgbuild-lab-{self._run}-{name}", f"--hostname={name}")
        self._containers[name] = ""
        # A volume, since a read-only image can be lent nothing else; it is shared with the others.
        lent = self.needs_stub and not any(o.startswith("--volumes-from") for o in options)
        stub = [f"--volume={STUB_FOLDER}"] if lent else []
        create = (*where, labels, *network, *stub, *options, self.image, *command)
        if not lent:
            made = docker("run", "--detach", *create).strip()
        else:
            made = docker("create", *create).strip()
            self._lend_stub(made)
            docker("start", made)
        self._containers[name] = made
        return made

    def as_user(self, name: str, user: str) -> Container:
        """Give the container of that name to a user, as `docker exec --user` does."""
        return self._with_programs(f"{user}@{self.id_of(name)}")

    def join(self, network: str, name: str, *options: str) -> Container:
        """Start a container that the others on `network` (of `network()`) know as `name`."""
        return self.start(name, f"--network={network}", f"--network-alias={name}", *options)

    def network(self) -> str:
        """Return a new network that only this lab's containers are on, with no way out of it."""
        name = f"imgbuild-lab-{self._run}-{len(self._networks)}"
        self._networks.append(name)
        docker("network", "create", "--internal", f"--label={LABEL}={self.name}", name)
        return name

    def id_of(self, name: str) -> str:
        """Return the engine's id of a container."""
        return self._containers[name]

    def remove(self, name: str) -> None:
        """Kill and remove one container."""
        docker("rm", "--force", "--volumes", self._containers.pop(name))

    def close(self) -> None:
        """Remove all containers and networks, whatever became of them."""
        names = [f"imgbuild-lab-{self._run}-{name}" for name in self._containers]
        _forgiving("rm", "--force", "--volumes", *names)
        _forgiving("network", "rm", *self._networks)

    def _with_programs(self, container: str) -> Container:
        host: Host = testinfra.get_host(f"{HOST_SPEC}{container}")
        return Container(host, copy_programs(host))

    def _lend_stub(self, container: str) -> None:
        """Copy the driver's stub from the first container, where there is one."""
        stub = subprocess.run(
            ["docker", "cp", f"{self.first}:{STUB}", "-"],
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        if stub.returncode == 0:
            docker("cp", "-", f"{container}:{STUB_FOLDER}", stdin=stub.stdout)


def open_lab(hosts: str, *, needs_stub: bool) -> Lab:
    """Return a lab for the image behind testinfra's `--hosts=docker://CONTAINER`."""
    first = container_of(hosts)
    known = inspect("container", first)
    labels = known["Config"]["Labels"] or {}
    return Lab(str(known["Image"]), first, labels.get(LABEL, "by-hand"), needs_stub)


def _forgiving(*arguments: str) -> None:
    """Run a `docker` command whose fault is of no interest: what it removes may be gone."""
    if len(arguments) > len(("network", "rm")) or arguments[0] == "rm":
        subprocess.run(["docker", *arguments], capture_output=True, timeout=SECONDS, check=False)
