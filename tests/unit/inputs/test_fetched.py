"""A fetched folder: what a build takes from it, and that nothing is begun when something lacks."""

import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from imgbuild.dockerfile.lockfile import Lock
from imgbuild.errors import InputError, MachineError
from imgbuild.files import ContentStore, sha256
from imgbuild.inputs.base import KEYRINGS
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
from imgbuild.settings import LayoutBase, Mirror, Settings

ITEMS = (
    Download("a.tar", "https://x.example/a.tar", "a" * 64, 5),
    Download("g++_4%3a12.deb", "http://x.example/g", "b" * 64, kind=Kind.APT_PACKAGE),
)
LISTING = Listing("tf-x", {"lock": "1"}, "ubuntu@sha256:" + "d" * 64, "ubuntu-18.04-1", ITEMS)
SETTINGS = Settings.model_validate(
    {
        "base": {"debian-12": {"from": "bootstrap"}},
        "cpython": {"3.6.15": {"from": "prefix", "path": "/opt/python"}},
        "mirrors": {"debian": "https://mirror.example/debian"},
        "netrc": "/etc/netrc",
    }
)
#: A release of an archive and its one list, which names g++.
SIGNED = Path(__file__).parent / "signed"
SIGNED_LISTS = {"InRelease": "InRelease", "Packages": "main_binary-amd64_Packages"}
START = "archive.example_debian_dists_stable_"
MIRRORS = "debian https://mirror.example/debian\n"


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
        store_text("wheel", folder, Kind.PYTHON, "h5py-2.10.0-py3-none-any.whl"),
        store_text("deb", folder, Kind.APT_PACKAGE, "g++_4%3a12_amd64.deb"),
        *(
            store_text((SIGNED / file).read_text(), folder, Kind.APT_LIST, f"{START}{name}")
            for file, name in SIGNED_LISTS.items()
        ),
        store_text(MIRRORS, folder, Kind.APT_MIRRORS, "upstreams"),
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
    base = {"debian-12": {"from": "layout", "path": "/srv/base"}}
    assert open_dest(settings=_with_base(base)).listings, "another machine may have another base"
    with pytest.raises(InputError, match=r"holds nothing for tf-2\.1-cpu-debian\. Run `imgbuild f"):
        open_dest(images["tf-2.1-cpu-debian"])
    with pytest.raises(InputError, match=r"changed: downloads, packages\)"):
        open_dest(settings=SETTINGS.model_copy(update={"cpython": {}}))
    path = ContentStore(dest).path(sha256(b"deb"))
    path.write_bytes(b"bad")
    with pytest.raises(InputError, match="was damaged since it was fetched"):
        open_dest().contexts(image.name)
    path.unlink()
    with pytest.raises(
        InputError, match=r"lacks g\+\+_4%3a12_amd64\.deb \(apt-package, sha\w+ \w+\) of"
    ):
        open_dest()
    ContentStore(dest).path(sha256(b"wheel")).unlink()
    with pytest.raises(InputError, match=r"lacks h5py.* and 1 more of tf-2\.2-cpu-debian"):
        open_dest()


def test_a_folder_of_today_is_no_snapshot_nor_the_reverse(open_dest: Open, dest: Path) -> None:
    mirrors = {"debian": Mirror(url="http://m/", snapshot="20261101T000000Z")}
    with pytest.raises(InputError, match=r"changed: snapshot\)"):
        open_dest(settings=SETTINGS.model_copy(update={"mirrors": mirrors}))
    (path,) = (dest / "images").iterdir()
    _change_listing(dest, request={**json.loads(path.read_text())["request"], "snapshot": "x"})
    with pytest.raises(InputError, match=r"changed: snapshot\)"):
        open_dest()


def _with_base(base: dict[str, Any]) -> Settings:
    return Settings.model_validate(
        {**SETTINGS.model_dump(by_alias=True, exclude_unset=True), "base": base}
    )


def test_a_base_that_the_settings_pin_is_no_other(
    open_dest: Open, dest: Path, image: Image
) -> None:
    """The listing is in the folder, too: it does not say what a base should be."""
    layout = dest / "base" / "debian-12-x"
    digest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    for pinned, listed in (("0" * 64, ""), (digest[7:], "debian@sha256:" + "0" * 64)):
        _change_listing(dest, base=listed)
        other = {"from": "registry", "image": f"debian@sha256:{pinned}"}
        with pytest.raises(InputError, match=r"base/debian-12-x is not debian@sha256:"):
            open_dest(settings=_with_base({"debian-12": other}))
    _change_listing(dest, base=f"debian@{digest}")
    settings = _with_base({"debian-12": {"from": "registry", "image": f"debian@{digest}"}})
    assert open_dest(settings=settings).listings[image.name].base == f"debian@{digest}"


def test_a_layout_that_the_settings_name_is_taken_in_place_of_the_folders(
    open_dest: Open, dest: Path, image: Image
) -> None:
    """Nor is a digest that the folder names for its own that of this one."""
    index = json.loads((dest / "base" / "debian-12-x" / "index.json").read_text())
    _change_listing(dest, base=f"debian@{index['manifests'][0]['digest']}")
    settings = _with_base({"debian-12": {"from": "layout", "path": "/srv/base"}})
    fetched = open_dest(settings=settings)
    assert fetched.settings(settings, [image]).base == settings.base
    inputs = BuildInputs({"debian-12": BaseInput("x", "sha256:1", "OCI layout")}, {}, dest, "1")
    assert fetched.known_bases(inputs, [image]) == inputs


def test_what_no_signature_says_is_there_to_compare(
    open_dest: Open, dest: Path, image: Image
) -> None:
    """How old the packages are, which lists there are, and which base image."""
    contents = open_dest().listings[image.name].contents(dest)
    said = "base image debian-12-x, stable of 01 Jan 2020 00:00:00 UTC"
    assert re.fullmatch(rf"{image.name} sha256:[0-9a-f]{{64}}: {said}", contents)
    (path,) = (dest / "images").iterdir()
    listing = json.loads(path.read_text())
    for left_out in ("Packages", "Python-3.6.15.tar.xz"):
        items = [one for one in listing["items"] if not one["name"].endswith(left_out)]
        _change_listing(dest, items=items)
        listing_now = read_listing(dest, image.name)
        assert listing_now
        assert listing_now.contents(dest) != contents
        assert listing_now.contents(dest).endswith(said)


def test_an_archive_with_its_own_key_is_verified_with_the_mirrors_keyring(
    open_dest: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(__file__).parents[1] / "audit" / "signed" / "other.gpg"
    monkeypatch.setitem(KEYRINGS, "debian", (other, "debian-archive-keyring"))
    with pytest.raises(
        InputError, match=r"gpgv refuses .*; for a mirror with its own key, name its `keyring`\."
    ):
        open_dest()
    mirror = {"url": "https://mirror.example/debian", "keyring": str(SIGNED / "keyring.gpg")}
    settings = Settings.model_validate(
        {**SETTINGS.model_dump(by_alias=True, exclude_unset=True), "mirrors": {"debian": mirror}}
    )
    assert open_dest(settings=settings).listings


def test_a_base_under_another_name_is_refused(open_dest: Open, dest: Path) -> None:
    """Loaded it would take that tag from another image."""
    assert open_dest().listings
    path = dest / "base" / "debian-12-x" / "manifest.json"
    path.write_text(path.read_text().replace("imgbuild/base:", "imgbuild/tensorflow:"))
    with pytest.raises(InputError, match=r"the base image in .*debian-12-x is not named as it was"):
        open_dest()


def _change_listing(dest: Path, **changes: Any) -> None:
    (path,) = (dest / "images").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("kind", "name", "text", "said"),
    [
        (Kind.PYTHON, "h5py-2.10.0-py3-none-any.whl", "evil", "has a sha256 that images/locks"),
        (Kind.CONDA, "python-3.6.2-0.tar.bz2", "evil", "has a sha256 that images/locks"),
        (Kind.APT_PACKAGE, "g++_4%3a12_amd64.deb", "evil", "no signed list of the archive"),
        (Kind.APT_LIST, f"{START}main_binary-amd64_Packages", "evil", "no signed list of the arch"),
        (Kind.APT_MIRRORS, "upstreams", "debian http://x/#e;#\n", "no lines NAME URL"),
        (
            Kind.APT_MIRRORS,
            "upstreams",
            "debian http://x/\vdebian http://x/\n",
            "no lines NAME URL",
        ),
    ],
)
def test_a_listing_that_names_other_files_is_not_believed(  # noqa: PLR0913, PLR0917 - a case
    open_dest: Open, dest: Path, kind: Kind, name: str, text: str, said: str
) -> None:
    forged = store_text(text, dest, kind, name)
    (path,) = (dest / "images").iterdir()
    items = [one for one in json.loads(path.read_text())["items"] if one["name"] != name]
    _change_listing(dest, items=[*items, asdict(forged)])
    with pytest.raises(InputError, match=said):
        open_dest()


def test_without_gpgv_or_the_archives_keys_it_is_said_how_to_get_them(
    open_dest: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(KEYRINGS, "debian", (tmp_path / "none.gpg", "debian-archive-keyring"))
    with pytest.raises(MachineError, match="apt-get install -y debian-archive-keyring`"):
        open_dest()
    monkeypatch.setattr("imgbuild.inputs.fetched.find_program", lambda _: None)
    with pytest.raises(MachineError, match="apt-get install -y gpgv debian-archive-keyring`"):
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


def test_every_lock_is_compared(images: dict[str, Image]) -> None:
    """Also the headers of CUDA, of an image whose MPI is in no lock."""
    image = images["tf-2.12-gpu-debian"]
    request = fetch_request(image, Project(ROOT), SETTINGS)
    assert {"lock", "build lock", "CUDA lock"} == {key for key in request if key.endswith("lock")}
