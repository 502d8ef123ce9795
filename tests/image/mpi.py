"""The MPI flavours of the images: how each starts ranks, and how it says its version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from limits import allowed

if TYPE_CHECKING:
    from collections.abc import Sequence

# As many flags as a user would have to give, and no more: that root may start ranks is the
# image's business. OpenMPI alone refuses more ranks than cores, and binds a rank to a core; the
# others start with Hydra, which knows none of its words.
MPIRUN = {
    "openmpi": ("--oversubscribe", "-bind-to", "none"),
    "intelmpi": (),
    "mpich": (),
}
# Horovod's launcher drives MPI itself; every flavour that it knows takes the same words.
HOROVODRUN = ("horovodrun", "-np", "2", "-H", "localhost:2")
#: Nodes that are containers share cores, where a rank that waits had better not spin; Open MPI
#: yields by itself only where it knows of more ranks than cores.
YIELDING = {"openmpi": ("env", "OMPI_MCA_mpi_yield_when_idle=1"), "intelmpi": (), "mpich": ()}
_SSH_LOST = "Connection to {node} closed by remote host"
#: What must be said where a node is lost in mid-run, with the node's name: by ssh, by Open MPI's
#: mpirun or a rank, whichever notices first; by Intel MPI's mpirun of 2018, or by what the images
#: give it as its ssh, for that of 2021 alone would wait for ever.
LOST = {
    "openmpi": rf"{_SSH_LOST}|Remote daemon: .* on node {{node}}\s|Peer host: +{{node}}\s",
    "intelmpi": rf"{_SSH_LOST}|lost the connection to node {{node}}\b|at host {{node}} failed",
    "mpich": _SSH_LOST,
}

VERSION_TEXT = {
    "openmpi": re.compile(r"\(Open MPI\) (?P<version>[\d.]+)"),
    # "Version 2018 Update 3 Build …" until 2019, "Version 2021.8 Build …" since
    "intelmpi": re.compile(r"Intel.*Version (?P<version>[\d.]+)(?: Update (?P<update>\d+))?"),
    "mpich": re.compile(r"HYDRA build details:\s+Version:\s+(?P<version>[\d.]+)"),
}


def mpirun(flavour: str, ranks: int) -> tuple[str, ...]:
    """Return the words that start so many ranks of the program that follows.

    >>> mpirun("intelmpi", 2)
    ('mpirun', '-n', '2')
    """
    return ("mpirun", "-n", str(ranks), *MPIRUN[flavour])


def launch(flavour: str, launcher: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the words that start a rank on each of these nodes.

    A rank is bound to no core: nodes that are containers have the same ones. Horovod's launcher
    gives up after 30 s by itself, which a machine that tests several images may need.

    >>> launch("openmpi", "mpirun", ["a", "b"])
    ('mpirun', '-n', '2', '-H', 'a:1,b:1', '-bind-to', 'none')
    >>> launch("intelmpi", "mpirun", ["a", "b"])
    ('mpirun', '-n', '2', '-ppn', '1', '-hosts', 'a,b')
    >>> launch("openmpi", "horovodrun", ["a", "b"])
    ('env', 'HOROVOD_START_TIMEOUT=120', 'horovodrun', '-np', '2', '-H', 'a:1,b:1')
    """
    ranks, slots = str(len(nodes)), ",".join(f"{node}:1" for node in nodes)
    if launcher == "horovodrun":
        # The option was called --horovod-start-timeout up to 0.17.
        patient = ("env", f"HOROVOD_START_TIMEOUT={allowed(120)}")
        return (*patient, "horovodrun", "-np", ranks, "-H", slots)
    if flavour == "openmpi":
        return ("mpirun", "-n", ranks, "-H", slots, "-bind-to", "none")
    return ("mpirun", "-n", ranks, "-ppn", "1", "-hosts", ",".join(nodes))


def says_lost(flavour: str, node: str, text: str) -> bool:
    """Return whether what the launcher printed names the node that was lost."""
    return re.search(LOST[flavour].format(node=re.escape(node)), text) is not None


def mpi_version(flavour: str, text: str) -> str | None:
    r"""Return the version in what `mpirun --version` printed; None where it is another flavour.

    >>> mpi_version("openmpi", "mpirun (Open MPI) 4.1.4")
    '4.1.4'
    >>> mpi_version("intelmpi", "Intel(R) MPI Library for Linux* OS, Version 2018 Update 3 Build 1")
    '2018.3'
    >>> mpi_version("mpich", "HYDRA build details:\n    Version:            4.1.3")
    '4.1.3'
    >>> mpi_version("mpich", "mpirun (Open MPI) 4.1.4")
    """
    found = VERSION_TEXT[flavour].search(text)
    if found is None:
        return None
    parts = found.groupdict()
    return ".".join(filter(None, (parts["version"], parts.get("update"))))
