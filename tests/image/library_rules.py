"""Judge the libraries that `programs/elf_links.py` did not find where the loader looks.

A file may get a library in another way: the program that loads the file has loaded the library
before. Each such way is written here, with its reason.
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


#: Debian's packages of libraries, if they are not called as Debian's policy says (section 8.1).
#: Source: Contents-amd64 of Debian 12. Ubuntu 18.04 has the same names.
DEBIAN_PACKAGES = {
    "libgdk_pixbuf-2.0.so.0": "libgdk-pixbuf-2.0-0",
    "libgeos_c.so.1": "libgeos-c1v5",
    "libgio-2.0.so.0": "libglib2.0-0",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgmodule-2.0.so.0": "libglib2.0-0",
    "libgobject-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libxml2.so.2": "libxml2",
    "libxslt.so.1": "libxslt1.1",
}
#: A library of the system; names that auditwheel gives to bundled ones have a hash.
SYSTEM_LIBRARY = re.compile(r"(lib(?!.*-[0-9a-f]{8})[\w.+-]+)\.so\.(\d+)")


def debian_package(name: str) -> str | None:
    """Return the package that has a library by Debian's naming policy; None if no rule applies."""
    system = SYSTEM_LIBRARY.fullmatch(name)
    if name in DEBIAN_PACKAGES or system is None:
        return DEBIAN_PACKAGES.get(name)
    stem, number = system[1].lower().replace("_", "-"), system[2]
    return f"{stem}-{number}" if stem[-1].isdigit() else f"{stem}{number}"


def unexplained(missing: Iterable[tuple[str, str, list[str]]], *, gpu: bool) -> list[str]:
    """Return a line for each library that no way explains: the file, the library, its place.

    If libraries are not in the image, the first line names them all, and Debian's packages. An
    older system can have other names of packages.
    """
    ways = (*WAYS, *WAYS_OF_GPU) if gpu else WAYS
    wrong = [one for one in missing if not any(way.holds(*one) for way in ways)]
    lines = [f"{asker} needs {name}: {_where(places)}" for asker, name, places in wrong]
    absent = sorted({name for _, name, places in wrong if not places})
    packages = sorted({package for name in absent if (package := debian_package(name))})
    if packages:
        known = f"Debian's packages: {' '.join(packages)}"
        lines.insert(0, f"not in the image: {', '.join(absent)}. {known}")
    return lines


def _where(places: list[str]) -> str:
    if not places:
        return "not in the image"
    return f"not where the loader looks, but {', '.join(places)}"
