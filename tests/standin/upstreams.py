"""All stand-ins of one matrix, made where they are missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from standin.anaconda import anaconda_site
from standin.base_image import ubuntu_base
from standin.conda_interpreter import interpreter
from standin.intel import intel_site, intel_version
from standin.nvidia import cuda_repositories, machine_learning_repositories
from standin.open_mpi import open_mpi_site, open_mpi_version
from standin.signing import signing_key
from standin.ubuntu import git_version, ubuntu_archive

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from standin.context import Context
    from standin.signing import SigningKey


@dataclass(frozen=True)
class Site:
    """One upstream's stand-in: its name in the matrix, its folder, the key of its repositories."""

    name: str
    folder: Path
    key: SigningKey | None = None


@dataclass(frozen=True)
class StandIns:
    """Everything that stands in: sites, base images by name, and the versions truly in them."""

    sites: tuple[Site, ...]
    bases: Mapping[str, Path]
    versions: Mapping[str, str] = field(default_factory=dict)


def make_standins(context: Context) -> StandIns:
    """Return the stand-ins: minutes the first time, a second afterwards.

    Raises:
        RuntimeError: a tool, the engine or a download is missing.

    """
    keys = {name: signing_key(context, name) for name in ("ubuntu", "nvidia-cuda", _LEARNING)}
    ubuntu = keys["ubuntu"]
    sites = (
        Site("ubuntu", ubuntu_archive(context, ubuntu), ubuntu),
        Site("nvidia-cuda", cuda_repositories(context, keys["nvidia-cuda"]), keys["nvidia-cuda"]),
        Site(_LEARNING, machine_learning_repositories(context, keys[_LEARNING]), keys[_LEARNING]),
        Site("anaconda", anaconda_site(context)),
        Site("intel", intel_site(context)),
        Site("open-mpi", open_mpi_site(context)),
    )
    return StandIns(sites, _bases(context, ubuntu), _versions(context, sites))


_LEARNING = "nvidia-machine-learning"


def _bases(context: Context, key: SigningKey) -> dict[str, Path]:
    return {
        name: ubuntu_base(context, name, key).path
        for name, system in context.matrix.operating_systems.items()
        if system.distribution == "ubuntu"
    }


def _versions(context: Context, sites: tuple[Site, ...]) -> dict[str, str]:
    """Return what the stand-ins truly hold, by component or by an MPI's name in the matrix."""
    folders = {site.name: site.folder for site in sites}
    mpi = {}
    for name, entry in context.matrix.mpi.items():
        if entry.origin == "installer":
            mpi[name] = intel_version()
        elif entry.origin == "source":
            mpi[name] = open_mpi_version(folders["open-mpi"])
    python = interpreter(context, "3.6")[0]
    return {"python": python, "git": git_version(folders["ubuntu"]), **mpi}
