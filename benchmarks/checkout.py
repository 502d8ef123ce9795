"""The checkout under measurement: its images, its command, and copies that may be changed."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.command import MissingError
from benchmarks.engine import BUILDX
from benchmarks.results import ROOT
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.project import Project, cache_dir

#: What a copy of the checkout needs for imgbuild to work in it.
PARTS = ("matrix.yaml", "images", "tests/image")
#: What may be taken over from the user's cache: all but what spares compiling.
WARM = ("base", "cpython", "downloads")


def imgbuild() -> list[str]:
    """Return the command as people call it: the script that the installation made."""
    program = Path(sys.executable).with_name("imgbuild")
    if not program.is_file():
        raise MissingError(
            f"there is no {program.name} beside {Path(sys.executable).name}; run make"
        )
    return [str(program)]


def images(names: Sequence[str] = (), project: Project | None = None) -> tuple[Image, ...]:
    """Return the matrix's images of these names in this order, or all of them."""
    found = {i.name: i for i in all_images(load_matrix((project or Project(ROOT)).matrix))}
    unknown = [name for name in names if name not in found]
    if unknown:
        raise MissingError(f"the matrix has no {', '.join(unknown)}; it has {', '.join(found)}")
    return tuple(found[name] for name in names) if names else tuple(found.values())


def debian_family() -> tuple[str, ...]:
    """Return the names of the images of the debian stack with its usual MPI."""
    return tuple(i.name for i in images() if i.stack == "debian" and i.usual_mpi)


def copy_checkout(target: Path) -> Project:
    """Copy what imgbuild reads of the checkout, so that it can be changed."""
    for part in PARTS:
        source = ROOT / part
        place = target / part
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, place)
    return Project(target)


def settings_for(host: str | None, target: Path) -> Path:
    """Write this machine's settings with another engine (``None``: without any) to ``target``."""
    own = Project(ROOT).settings
    settings: dict[str, Any] = {}
    if own.is_file():
        settings = yaml.safe_load(own.read_text(encoding="utf-8")) or {}
    settings.pop("engine", None)
    if host:
        settings["engine"] = {"host": host}
    target.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return target


def environment(work: Path, host: str | None, *, cache: Path | None = None) -> dict[str, str]:
    """Return the environment of a measured command: state, cache and settings of its own."""
    settings = settings_for(host, work / "settings.yaml")
    kept: Mapping[str, str] = os.environ
    ours = {
        "IMGBUILD_SETTINGS": str(settings),
        "XDG_STATE_HOME": str(work / "state"),
        **BUILDX,
        "NO_COLOR": "1",
    }
    given = {"XDG_CACHE_HOME": str(cache)} if cache else {}
    return {**kept, **ours, **given, **({"DOCKER_HOST": host} if host else {})}


def seed_cache(target: Path) -> None:
    """Copy the user's base images, interpreters and downloads; never a compiled wheel."""
    for name in WARM:
        source = cache_dir() / name
        if source.is_dir():
            shutil.copytree(source, target / "imgbuild" / name, symlinks=True)
