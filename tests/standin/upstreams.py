"""All stand-ins of one matrix, made where they are missing, and the settings that name them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from imgbuild.inputs.base import KEYRINGS
from standin.anaconda import anaconda_site
from standin.apt_repository import SigningKey, signing_key
from standin.base_image import ubuntu_base
from standin.conda_interpreter import interpreter
from standin.context import Context, sha256_of
from standin.nvidia import cuda_repositories, machine_learning_repositories
from standin.open_mpi import open_mpi_site, open_mpi_version
from standin.ubuntu import git_version, ubuntu_archive

NOTE = "Made from stand-ins for Ubuntu, Anaconda, NVIDIA and Open MPI; for tests only."
_ENDINGS = (".sh", ".tgz", ".tar.gz", ".tar.bz2")
_LEARNING = "nvidia-machine-learning"


@dataclass(frozen=True)
class Site:
    """One upstream's stand-in: its name in the matrix, its folder, its repositories' keyring."""

    name: str
    folder: Path
    keyring: Path | None = None


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
    names = ("ubuntu", "nvidia-cuda", _LEARNING)
    ubuntu, cuda, learning = (signing_key(context, name) for name in names)
    sites = (
        Site("ubuntu", ubuntu_archive(context, ubuntu), _with_debian(context, ubuntu)),
        Site("nvidia-cuda", cuda_repositories(context, cuda), cuda.keyring),
        Site(_LEARNING, machine_learning_repositories(context, learning), learning.keyring),
        Site("anaconda", anaconda_site(context)),
        Site("open-mpi", open_mpi_site(context)),
    )
    return StandIns(sites, _bases(context, ubuntu), _versions(context, sites))


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
        if entry.origin == "source":
            mpi[name] = open_mpi_version(folders["open-mpi"])
    python = interpreter(context, "3.6")[0]
    return {"python": python, "git": git_version(folders["ubuntu"]), **mpi}


def settings_of(context: Context, standins: StandIns, url: str) -> dict[str, Any]:
    """Return what ``imgbuild.local.yaml`` would hold, for a server at ``url``."""
    own = context.settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    kept = {key: own[key] for key in ("engine", "base", "cpython", "ca_bundle") if own.get(key)}
    bases = {name: {"from": "layout", "path": str(path)} for name, path in standins.bases.items()}
    return {
        **kept,
        "base": {**kept.get("base", {}), **bases},
        "mirrors": {site.name: _mirror(site, url) for site in standins.sites},
        "substitutes": _substitutes(standins),
        "standin": {"note": NOTE, "versions": dict(standins.versions)},
    }


def write_settings(path: Path, settings: dict[str, Any]) -> None:
    """Write them as YAML."""
    head = "# Written by `python -m standin`: for tests only.\n"
    path.write_text(head + yaml.safe_dump(settings, sort_keys=False, width=200), encoding="utf-8")


def _mirror(site: Site, url: str) -> dict[str, str]:
    keyring = {"keyring": str(site.keyring)} if site.keyring else {}
    return {"url": f"{url}/{site.name}/", **keyring}


def _with_debian(context: Context, key: SigningKey) -> Path:
    """Return a keyring of both archives that the base images ask."""

    def make(folder: Path) -> None:
        keys = key.keyring.read_bytes() + KEYRINGS["debian"][0].read_bytes()
        (folder / "keyring.gpg").write_bytes(keys)

    return context.stored("keyring-ubuntu", [key.fingerprint], (), make) / "keyring.gpg"


def _substitutes(standins: StandIns) -> dict[str, str]:
    """Return the sha256 of every download of a stand-in, by file name."""
    files = {
        path.name: path
        for site in standins.sites
        if site.keyring is None
        for path in sorted(site.folder.rglob("*"))
        if path.name.endswith(_ENDINGS)
    }
    return {name: sha256_of(path) for name, path in sorted(files.items())}
