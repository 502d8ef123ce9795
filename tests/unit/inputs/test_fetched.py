"""A fetched folder: what a build takes from it, and that nothing is begun when something lacks."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.errors import InputError
from imgbuild.files import ContentStore, sha256
from imgbuild.inputs.build_inputs import BaseInput, BuildInputs
from imgbuild.inputs.download import Download, Kind
from imgbuild.inputs.fetched import (
    FetchedInputs,
    Listing,
    fetch_request,
    listing_path,
    open_fetched,
    read_listing,
    write_listing,
)
from imgbuild.inputs.oci_layout import read_layout, write_layout
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import LayoutBase, Settings

ITEMS = (
    Download("a.tar", "https://x.example/a.tar", "a" * 64, 5),
    Download("g++_4%3a12.deb", "http://x.example/g", "b" * 64, kind=Kind.APT_PACKAGE),
)
LISTING = Listing("tf-x", {"lock": "1"}, "ubuntu@sha256:" + "d" * 64, "ubuntu-18.04-1", ITEMS)
SETTINGS = Settings.model_validate(
    {
        "cpython": {"3.6.15": {"from": "prefix", "path": "/opt/python"}},
        "mirrors": {"debian": "https://mirror.example/debian"},
        "netrc": "/etc/netrc",
    }
)


def store_text(text: str, folder: Path, kind: Kind, name: str) -> Download:
    """Return a text as an item, written to ``folder``."""
    content = text.encode()
    ContentStore(folder).put(sha256(content), lambda part: part.write_bytes(content))
    return Download(name, "", sha256(content), len(content), kind)


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
def dest(tmp_path: Path, made: Path, image: Image, project: Project) -> Path:
    """Return a folder with everything of one image."""
    folder = tmp_path / "dest"
    shutil.copytree(made, folder / "base" / "debian-12-x")
    items = (
        store_text("wheel", folder, Kind.PYTHON, "h5py-2.10.0-py3-none-any.whl"),
        store_text("deb", folder, Kind.APT_PACKAGE, "g++_4%3a12_amd64.deb"),
        store_text("list", folder, Kind.APT_LIST, "archive.example_debian_InRelease"),
        store_text("", folder, Kind.APT_MIRRORS, "upstreams"),
        store_text("source", folder, Kind.DOWNLOAD, "Python-3.6.15.tar.xz"),
    )
    request = fetch_request(image, project, SETTINGS)
    write_listing(Listing(image.name, request, "", "debian-12-x", items), folder)
    return folder


Open = Callable[..., FetchedInputs]


@pytest.fixture
def open_dest(dest: Path, image: Image, project: Project, tmp_path: Path) -> Open:
    """Open the folder for an image on a machine with these settings."""

    def opened(of: Image = image, settings: Settings = SETTINGS) -> FetchedInputs:
        return open_fetched(dest, [of], project, settings, tmp_path / "cache")

    return opened


def test_the_files_are_where_the_dockerfiles_look(open_dest: Open, image: Image) -> None:
    fetched = open_dest()
    contexts = fetched.contexts(image.name)
    assert {*contexts} == {"downloads", "offline"}
    files = [p for p in contexts["offline"].rglob("*") if p.is_file()]
    assert sorted(p.relative_to(contexts["offline"]).as_posix() for p in files) == [
        "apt/archives/g++_4%3a12_amd64.deb",
        "apt/lists/archive.example_debian_InRelease",
        "apt/upstreams",
        "python/h5py-2.10.0-py3-none-any.whl",
    ]
    assert (contexts["downloads"] / "Python-3.6.15.tar.xz").read_text() == "source"
    assert fetched.contexts(image.name) == contexts


def test_the_base_is_the_fetched_one(open_dest: Open, dest: Path, made: Path, image: Image) -> None:
    fetched = open_dest()
    settings = fetched.settings(SETTINGS, [image])
    base = settings.base["debian-12"]
    assert isinstance(base, LayoutBase)
    assert read_layout(Path(base.path)).image_id == read_layout(made).image_id
    assert (settings.netrc, settings.cpython) == (None, SETTINGS.cpython)
    inputs = BuildInputs({"debian-12": BaseInput("x", "sha256:1", "OCI layout")}, {}, dest, "1")
    assert fetched.known_bases(inputs, [image]) == inputs
    listing = replace(fetched.listings[image.name], base="debian@sha256:2")
    known = replace(fetched, listings={image.name: listing}).known_bases(inputs, [image])
    assert known.bases["debian-12"].digest == "sha256:2"


def test_what_the_folder_does_not_hold_is_named_before_anything_is_built(
    open_dest: Open, dest: Path, image: Image, images: dict[str, Image]
) -> None:
    base = {"debian-12": {"from": "registry", "image": f"debian@sha256:{'0' * 64}"}}
    other = Settings.model_validate(
        {**SETTINGS.model_dump(by_alias=True, exclude_unset=True), "base": base}
    )
    assert open_dest(settings=other).listings, "another machine may have its base from elsewhere"
    with pytest.raises(InputError, match=r"holds nothing for tf-2\.1-cpu-debian\. Run `imgbuild f"):
        open_dest(images["tf-2.1-cpu-debian"])
    with pytest.raises(InputError, match=r"changed: downloads, packages\)"):
        open_dest(settings=Settings.model_validate({"cpython": {}}))
    path = ContentStore(dest).path(sha256(b"deb"))
    path.write_bytes(b"bad")
    with pytest.raises(InputError, match="was damaged since it was fetched"):
        open_dest().contexts(image.name)
    path.unlink()
    with pytest.raises(InputError, match=r"lacks g\+\+_4%3a12_amd64\.deb \(apt-package, sha256"):
        open_dest()
    ContentStore(dest).path(sha256(b"wheel")).unlink()
    with pytest.raises(InputError, match=r"lacks h5py.* and 1 more of tf-2\.2-cpu-debian"):
        open_dest()


def test_a_damaged_base_is_named_before_anything_is_built(open_dest: Open, dest: Path) -> None:
    next((dest / "base").rglob("blobs/sha256/*")).write_text("!")
    with pytest.raises(InputError, match=r"base/debian-12-.* of tf-2.* is missing or damaged"):
        open_dest()


def test_a_listing_is_read_as_it_was_written_and_says_what_is_missing(tmp_path: Path) -> None:
    assert read_listing(tmp_path, "tf-x") is None
    write_listing(LISTING, tmp_path)
    assert read_listing(tmp_path, "tf-x") == LISTING
    document = json.loads((tmp_path / "images" / "tf-x.json").read_text())
    assert {*document["items"][0]} == {"kind", "name", "sha256", "size", "url"}
    path = ContentStore(tmp_path).path("a" * 64)
    path.parent.mkdir(parents=True)
    for content, missing in {b"12345": ITEMS[1:], b"1234": ITEMS}.items():
        path.write_bytes(content)
        assert LISTING.missing(ContentStore(tmp_path)) == missing


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 1},
        {"items": [{"kind": "download"}]},
        {"items": [{"kind": "x", "name": "a", "url": "", "sha256": "a" * 64}]},
        {"items": [{"kind": "download", "name": "../a", "url": "", "sha256": "a" * 64}]},
        {"items": [{"kind": "download", "name": "a", "url": "", "sha256": "../../etc"}]},
        {"layout": "../a"},
        {"more": 1},
    ],
)
def test_what_is_no_listing_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A folder may come from another machine: no name in it leads out of it."""
    write_listing(LISTING, tmp_path)
    path = listing_path(tmp_path, "tf-x")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=r"tf-x\.json is no listing of this imgbuild") as caught:
        read_listing(tmp_path, "tf-x")
    assert "Value error" not in str(caught.value)
