"""Users that start ranks on other nodes: their keys, their sshd, and the nodes that know them.

No key is in an image. As Kubernetes mounts a Secret, the nodes share a volume at `~/.ssh`, with one
key pair that is made at start and is each host's key, too; all but the first only read it. A second
volume holds the suites' programs, at the same path on every node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import testinfra  # type: ignore[import-untyped]
from container import Container
from docker_command import HOST_SPEC, docker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container import Ran
    from lab import Lab

SSHD = "/usr/sbin/sshd"
#: Where the programs lie on every node.
PROGRAMS = "/imgbuild-suite"
SECONDS = 20

# What mpi-operator makes: an ECDSA key under the name id_rsa, owned by root. A plain user's ssh
# refuses a private key that others may read only where it is its own.
_PREPARE = """
set -eu
cd "$1"
ssh-keygen -q -t ecdsa -b 521 -N '' -f id_rsa
cp id_rsa.pub authorized_keys
chmod "$2" id_rsa
cp -r "$3"/. "$4"
chmod -R a+rX "$4"
"""
#: What MPI's ssh is told in the images; those from elsewhere have nothing of the kind.
_REACH = """
config=/etc/ssh/ssh_config_mpi
for node; do
    until ssh $([ ! -e "$config" ] || echo "-F $config") "$node" true; do sleep 0.2; done
done
"""


@dataclass(frozen=True)
class User:
    """Whom a container runs as; how its sshd is told its configuration; the private key's mode."""

    name: str
    home: str
    options: tuple[str, ...]
    sshd: tuple[str, ...]
    key_mode: str


ROOT = User("root", "/root", (), (), "0600")
#: The user of Kubeflow's MPIJob; Kubernetes runs sshd in place of the image's entry point.
MPIUSER = User(
    "mpiuser", "/home/mpiuser", ("--user=1000:1000",), ("-f", "/home/mpiuser/.sshd_config"), "0644"
)
USERS = {user.name: user for user in (ROOT, MPIUSER)}


@dataclass(frozen=True)
class Nodes:
    """Containers by name, the first of which starts jobs; `ready` says whether it reaches all."""

    containers: dict[str, Container]
    ready: Ran

    @property
    def names(self) -> list[str]:
        """Return the nodes' names; the first is where jobs are started."""
        return list(self.containers)

    @property
    def first(self) -> Container:
        """Return the node that jobs are started on."""
        return next(iter(self.containers.values()))


def start_nodes(lab: Lab, user: User, names: Sequence[str]) -> Nodes:
    """Start nodes on a network of their own, and wait until the first reaches the others.

    Where sshd refuses its configuration or its key, or is not there, only the first is started.
    """
    network, first = lab.network(), names[0]
    volumes = (f"--volume={user.home}/.ssh", f"--volume={PROGRAMS}")
    made = lab.join(network, first, *volumes, *user.options)
    containers = {first: Container(made.host, PROGRAMS)}
    words = (f"{user.home}/.ssh", user.key_mode, made.programs, PROGRAMS)
    docker("exec", "--user=0", lab.id_of(first), "sh", "-c", _PREPARE, "sh", *words)
    checked = made.run(SSHD, "-t", *user.sshd, seconds=SECONDS)
    if checked.failed:
        return Nodes(containers, checked)
    shared = (f"--network={network}", f"--volumes-from={lab.id_of(first)}:ro")
    for name in names[1:]:
        containers[name] = _serving(lab, user, name, *shared, f"--network-alias={name}")
    return Nodes(containers, made.run("sh", "-c", _REACH, "sh", *names[1:], seconds=SECONDS))


def _serving(lab: Lab, user: User, name: str, *options: str) -> Container:
    """Start a node that only runs sshd: root's under the entry point, others' in its place."""
    words: tuple[str, ...] = (SSHD, "-De", *user.sshd)
    if user is not ROOT:
        options = (*options, f"--entrypoint={SSHD}")
        words = words[1:]
    made = lab.bare(name, *user.options, *options, command=words)
    return Container(testinfra.get_host(f"{HOST_SPEC}{made}"), PROGRAMS)
