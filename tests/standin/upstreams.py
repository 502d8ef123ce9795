"""All stand-ins of one matrix, made where they are missing, and the settings that name them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.core.files import file_sha256
from imgbuild.inputs.bootstrap import KEYRINGS
from standin.anaconda import anaconda_site
from standin.apt_repository import SigningKey, signing_key
from standin.base_image import ubuntu_base
from standin.conda_interpreter import interpreter
from standin.context import Context
from standin.nvidia import cuda_repositories, machine_learning_repositories
from standin.open_mpi import open_mpi_site, open_mpi_version
from standin.ubuntu import git_version, ubuntu_archive

NOTE = "Made from stand-ins for Ubuntu, Anaconda, NVIDIA and Open MPI; for tests only."
_ENDINGS = (".sh", ".tgz", ".tar.gz", ".tar.bz2")
_UBUNTU, _LEARNING = "ubuntu", "nvidia-machine-learning"


@dataclass(frozen=True)
class Site:
    """One upstream's stand-in: its name in the matrix, its folder, its repositories' keyring."""

    name: str
    folder: Path
    keyring: Path | None = None

    @property
    def keys(self) -> dict[str, str]:
        return {"keyring": str(self.keyring)} if self.keyring else {}


def make_sites(context: Context) -> tuple[Site, ...]:
    """Return the stand-ins: minutes the first time, a second afterwards."""
    ubuntu, cuda, learning = (
        signing_key(context, name) for name in (_UBUNTU, "nvidia-cuda", _LEARNING)
    )
    return (
        Site(_UBUNTU, ubuntu_archive(context, ubuntu), _with_debian(context, ubuntu)),
        Site("nvidia-cuda", cuda_repositories(context, cuda), cuda.keyring),
        Site(_LEARNING, machine_learning_repositories(context, learning), learning.keyring),
        Site("anaconda", anaconda_site(context)),
        Site("open-mpi", open_mpi_site(context)),
    )


def settings_of(context: Context, sites: Iterable[Site], url: str) -> dict[str, Any]:
    """Return what ``imgbuild.local.yaml`` would hold, for a server at ``url``."""
    own = context.settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    kept = {key: own[key] for key in ("engine", "base", "cpython", "ca_bundle") if own.get(key)}
    key = signing_key(context, _UBUNTU)
    bases = {
        name: {"from": "layout", "path": str(ubuntu_base(context, name, key).layout)}
        for name, system in context.matrix.operating_systems.items()
        if system.distribution == "ubuntu"
    }
    return {
        **kept,
        "base": {**kept.get("base", {}), **bases},
        "mirrors": {site.name: {"url": f"{url}/{site.name}/", **site.keys} for site in sites},
        "substitutes": _substitutes(sites),
        "standin": {"note": NOTE, "versions": _versions(context, sites)},
    }


def _versions(context: Context, sites: Iterable[Site]) -> dict[str, str]:
    """Return what the stand-ins truly hold, by component or by an MPI's name in the matrix."""
    folders = {site.name: site.folder for site in sites}
    mpi = {
        name: open_mpi_version(folders["open-mpi"])
        for name, entry in context.matrix.mpi.items()
        if entry.origin == "source"
    }
    python = interpreter(context, "3.6")[0]
    return {"python": python, "git": git_version(folders[_UBUNTU]), **mpi}


def _with_debian(context: Context, key: SigningKey) -> Path:
    """Return a keyring of both archives that the base images ask."""

    def make(folder: Path) -> None:
        keys = key.keyring.read_bytes() + KEYRINGS["debian"][0].read_bytes()
        (folder / "keyring.gpg").write_bytes(keys)

    return context.stored("keyring-ubuntu", [key.fingerprint], (), make) / "keyring.gpg"


def _substitutes(sites: Iterable[Site]) -> dict[str, str]:
    """Return the sha256 of every download of a stand-in, by file name."""
    return {
        path.name: file_sha256(path)
        for site in sites
        if site.keyring is None
        for path in sorted(site.folder.rglob("*"))
        if path.name.endswith(_ENDINGS)
    }
