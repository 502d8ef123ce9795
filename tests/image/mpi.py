"""The MPI flavours of the images: how each starts ranks, and how it says its version."""

from __future__ import annotations

import re

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
