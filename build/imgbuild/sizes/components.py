"""What an image's bytes are for: rules, in order, by the owning package or by the path. Data."""

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from imgbuild.sizes.filesystem import StoredFile

OTHER = "other"


class Rule(NamedTuple):
    """A file belongs to ``component`` if its owner or its path matches; ``*`` matches slashes."""

    component: str
    owners: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def _deb(names: str) -> tuple[str, ...]:
    return tuple(f"deb:{name}" for name in names.split())


#: What Debian's Open MPI brings beside: process management, fabrics, topology; from libxml2 on what
#: nothing but hwloc's plugins needs in these images.
_BESIDE_OPENMPI = (
    "libpmix* libucx* libfabric* libpsm* libhwloc* libmunge* libevent-* libnl-* ibverbs-providers "
    "libibverbs* librdmacm* libmlx* libdapl* dapl* ocl-icd* libxnvctrl* libxml2 libicu* libx11-* "
    "libxext6"
)
#: The first rule that fits decides. A rule for owners therefore stands before one for paths.
RULES = (
    Rule("TensorFlow", ("python:tensorflow", "python:tensorflow-*", "python:tf-estimator*")),
    Rule("TensorBoard", ("python:tensorboard", "python:tensorboard-*")),
    Rule("Horovod", ("python:horovod",)),
    Rule("NumPy, SciPy", ("python:numpy", "python:scipy")),
    Rule(
        "MPI",
        ("python:impi-*", *_deb(f"*openmpi* mpi-* {_BESIDE_OPENMPI}")),
        ("opt/impi/*", "opt/intel/*", "opt/openmpi/*", "usr/local/openmpi/*"),
    ),
    Rule(
        "CUDA",
        _deb("cuda-* libcudnn* libnccl* libcublas* libcufft* libcurand* libcusolver* libcusparse*"),
        ("usr/local/cuda*",),
    ),
    Rule("packages", ("python:*",), ("*/site-packages/*", "*/dist-packages/*")),
    Rule("Python", ("conda:*",), ("opt/python/*", "opt/miniconda*", "opt/conda/*")),
    Rule("git, perl", _deb("git git-man perl perl-modules-* libperl*")),
    Rule(
        "system",
        ("deb:*",),
        ("bin/*", "etc/*", "home/*", "lib*", "root/*", "sbin/*", "usr/*", "var/*"),
    ),
)
NAMES = (*(rule.component for rule in RULES), OTHER)


@cache
def _by_owner(owner: str) -> tuple[int, str]:
    """Return the first rule that names the owner, as its rank, and the component."""
    for rank, rule in enumerate(RULES):
        if any(fnmatchcase(owner, pattern) for pattern in rule.owners):
            return rank, rule.component
    return len(RULES), OTHER


def component_of(owner: str, path: str) -> str:
    """Return what a file is for."""
    rank, component = _by_owner(owner)
    for rule in RULES[:rank]:
        if any(fnmatchcase(path, pattern) for pattern in rule.paths):
            return rule.component
    return component


def by_component(files: Iterable[StoredFile]) -> dict[str, int]:
    """Return the bytes of each component that has any, in the order of the rules."""
    total: Counter[str] = Counter()
    for file in files:
        total[component_of(file.owner, file.path)] += file.size
    return {name: total[name] for name in NAMES if total[name]}
