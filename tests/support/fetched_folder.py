"""A fetched folder with everything of an image."""

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.core.files import ContentStore, sha256
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.core.sources import Kind, Source
from imgbuild.inputs.bootstrap import KEYRINGS
from imgbuild.inputs.fetched import (
    Listing,
    fetch_request,
    read_listings,
    write_listing,
)
from imgbuild.inputs.oci_layout import write_layout
from imgbuild.locks.lockfile import Lock
from imgbuild.matrix.images import Image
from support.project_copy import ROOT

SETTINGS = Settings.model_validate(
    {
        "base": {"debian-12": {"from": "bootstrap"}},
        "cpython": {"3.6.15": {"from": "prefix", "path": "/opt/python"}},
        "mirrors": {"debian": "https://mirror.example/debian"},
        "netrc": "/etc/netrc",
    }
)
#: A release of an archive in both forms, and its one list, which names g++ and tzdata.
SIGNED = ROOT / "tests/unit/inputs/signed"
SIGNED_LISTS = {"InRelease": "InRelease", "Packages": "main_binary-amd64_Packages"}
START = "archive.example_debian_dists_stable_"
OTHER_KEY = ROOT / "tests/unit/maintain/signed/other.gpg"
MIRRORS = b"debian https://mirror.example/debian\n"


def stored(content: bytes, folder: Path, kind: Kind, name: str) -> Source:
    """Return content as an item, written to ``folder``."""
    ContentStore(folder).put(sha256(content), lambda part: part.write_bytes(content))
    return Source(name, "", sha256(content), len(content), kind)


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return the layout of a base image that was made on this machine."""
    rootfs = tmp_path / "rootfs.tar"
    with tarfile.open(rootfs, "w") as archive:
        archive.addfile(tarfile.TarInfo("etc/os-release"), io.BytesIO())
    folder = tmp_path / "made"
    folder.mkdir()
    write_layout(folder, rootfs, name="debian-12", epoch=0)
    return folder


@pytest.fixture
def dest(
    tmp_path: Path, made: Path, image: Image, project: Project, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a folder with everything of one image."""
    monkeypatch.setitem(KEYRINGS, "debian", (SIGNED / "keyring.gpg", "debian-archive-keyring"))
    lock = Lock("", {}, {"h5py": (sha256(b"wheel"),)})
    monkeypatch.setattr("imgbuild.inputs.fetched.read_lock", lambda _: lock)
    folder = tmp_path / "dest"
    shutil.copytree(made, folder / "base" / "debian-12-x")
    items = (
        stored(b"wheel", folder, Kind.PYTHON, "h5py-2.10.0-py3-none-any.whl"),
        stored(b"deb", folder, Kind.APT_PACKAGE, "g++_4%3a12_amd64.deb"),
        *(
            stored((SIGNED / file).read_bytes(), folder, Kind.APT_LIST, f"{START}{name}")
            for file, name in SIGNED_LISTS.items()
        ),
        stored(MIRRORS, folder, Kind.APT_MIRRORS, "upstreams"),
        stored(b"source", folder, Kind.DOWNLOAD, "Python-3.6.15.tar.xz"),
    )
    request = fetch_request(image, project, SETTINGS)
    write_listing(Listing(image.name, request, "", "debian-12-x", items), folder)
    return folder


Open = Callable[..., dict[str, Listing]]


@pytest.fixture
def open_dest(dest: Path, image: Image, project: Project) -> Open:
    """Open the folder for an image on a machine with these settings."""

    def opened(of: Image = image, settings: Settings = SETTINGS) -> dict[str, Listing]:
        return read_listings(dest, [of], project, settings)

    return opened
