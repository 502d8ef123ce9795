"""Judge the libraries that `programs/elf_links.py` did not find where the loader looks.

A name may be found in another way than by looking: whoever loads the file has loaded the library
before, or hands down where to look. Each such way is written here, with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_libraries import DRIVER, OPTIONAL

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGES = "/opt/python/lib/python[0-9.]+/site-packages"


@dataclass(frozen=True)
class Way:
    """How a file (`asker`) comes by a library: patterns of whole paths and names.

    `provider` is where the library lies; none: it may lie nowhere.
    """

    asker: str
    name: str
    provider: str | None
    reason: str

    def holds(self, asker: str, name: str, places: Iterable[str]) -> bool:
        """Return whether this way explains that `asker` names the library."""
        if not (re.fullmatch(self.asker, asker) and re.fullmatch(self.name, name)):
            return False
        provider = self.provider
        return provider is None or any(re.fullmatch(provider, place) for place in places)


WAYS = (
    Way(
        f"{PACKAGES}/horovod/tensorflow/mpi_lib.*",
        r"libtensorflow_(cc|framework)\.so(\.\d)?",
        f"{PACKAGES}/tensorflow(_core)?/.*",
        "horovod.tensorflow imports TensorFlow first, which loads it",
    ),
    Way(
        f"{PACKAGES}/horovod/tensorflow/mpi_lib.*",
        r"_pywrap_tensorflow_internal\.so",
        f"{PACKAGES}/tensorflow/python/_pywrap_tensorflow_internal\\.so",
        "the same: Horovod 0.28 takes XLA's functions from it, in TensorFlow 2.4 to 2.11",
    ),
    Way(
        f"{PACKAGES}/tensorflow_io_gcs_filesystem/.*",
        r"libtensorflow_framework\.so\.2",
        f"{PACKAGES}/tensorflow/libtensorflow_framework.*",
        "TensorFlow loads it, as one of its file systems",
    ),
    Way(
        f"{PACKAGES}/(numpy|scipy|h5py)(/\\.libs|\\.libs)/lib.*",
        r"lib(gfortran|quadmath|hdf5|sz|aec|z)-.*",
        f"{PACKAGES}/(numpy|scipy|h5py)(/\\.libs|\\.libs)/lib(gfortran|quadmath|hdf5|sz|aec|z)-.*",
        "it lies beside it, in the folder that the RPATH of the modules names; RPATH is inherited",
    ),
    Way(
        r"/usr/lib/.*/tc/q_atm\.so",
        r"libatm\.so\.1",
        None,
        "a plugin of iproute2 for ATM networks; the distributions do not install its library",
    ),
    Way(
        r"/opt/impi/.*/libfabric/prov/lib(efa|mlx|psm2|psm3|psmx2|verbs)-?.*-fi\.so",
        r"lib(efa|fabric|ibverbs|numa|psm2|rdmacm|ucp)\.so\.\d+",
        None,
        "Intel MPI's plugins for fabrics; libfabric passes over those that do not load",
    ),
    Way(
        r"/opt/impi/lib/libtmip_(mx|psm2?)\.so\..*",
        r"lib(myriexpress|psm_infinipath|psm2)\.so.*",
        None,
        "plugins for fabrics of Intel MPI 2018, which passes over those that do not load",
    ),
)
#: GPU images only: the driver's library is mounted, and what is optional is done without.
WAYS_OF_GPU = (
    Way(".*", re.escape(DRIVER), None, "the driver's, mounted together with a GPU"),
    *(Way(f"{PACKAGES}/tensorflow.*", f"{stem}.*", None, why) for stem, why in OPTIONAL.items()),
)


def unexplained(missing: Iterable[tuple[str, str, list[str]]], *, gpu: bool) -> list[str]:
    """Return a line a library that no way explains: who asks for it, and where it does lie."""
    ways = (*WAYS, *WAYS_OF_GPU) if gpu else WAYS
    return [
        f"{asker} needs {name}: {_where(places)}"
        for asker, name, places in missing
        if not any(way.holds(asker, name, places) for way in ways)
    ]


def _where(places: list[str]) -> str:
    if not places:
        return "not in the image"
    return f"not where the loader looks, but {', '.join(places)}"
