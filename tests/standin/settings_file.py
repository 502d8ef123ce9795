"""The settings with which imgbuild takes the stand-ins for the upstreams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from standin.context import sha256_of

if TYPE_CHECKING:
    from standin.context import Context
    from standin.upstreams import Site, StandIns

NOTE = "Made from stand-ins for Ubuntu, Anaconda, NVIDIA, Intel and Open MPI; for tests only."
_ENDINGS = (".sh", ".tgz", ".tar.gz", ".tar.bz2")


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
    # Ubuntu's archive is checked with the key that the base image holds.
    own = site.key and site.name != "ubuntu"
    keyring = {"keyring": str(site.key.keyring)} if own and site.key else {}
    return {"url": f"{url}/{site.name}/", **keyring}


def _substitutes(standins: StandIns) -> dict[str, str]:
    """Return the sha256 of every download of a stand-in, by file name."""
    files = {
        path.name: path
        for site in standins.sites
        if site.key is None
        for path in sorted(Path(site.folder).rglob("*"))
        if path.name.endswith(_ENDINGS)
    }
    return {name: sha256_of(path) for name, path in sorted(files.items())}
