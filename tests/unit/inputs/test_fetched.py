"""A fetched folder: what a build takes from it, and that nothing is begun when something lacks."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import ContentStore, sha256
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.core.sources import Kind
from imgbuild.inputs.base import Base
from imgbuild.inputs.bootstrap import KEYRINGS
from imgbuild.inputs.build_inputs import BuildInputs
from imgbuild.inputs.fetched import (
    apply_known_bases,
    fetch_request,
    offline_contexts,
    offline_settings,
    read_listing,
)
from imgbuild.inputs.oci_layout import read_layout
from imgbuild.matrix.images import Image
from support.fetched_folder import (
    OTHER_KEY,
    SETTINGS,
    SIGNED,
    START,
    Open,
    dest,
    image,
    made,
    open_dest,
    stored,
)
from support.project_copy import ROOT

__all__ = ["dest", "image", "made", "open_dest"]

INPUTS = BuildInputs({"debian-12": Base("x", "sha256:1", "layout")}, {}, Path("/uv"), "1")


def _with(**changes: Any) -> Settings:
    own = SETTINGS.model_dump(by_alias=True, exclude_unset=True)
    return Settings.model_validate({**own, **changes})


def _change_listing(dest: Path, **changes: Any) -> None:
    (path,) = (dest / "images").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _listed(dest: Path, key: str) -> Any:
    (path,) = (dest / "images").iterdir()
    return json.loads(path.read_text())[key]


def test_the_base_is_the_fetched_one(open_dest: Open, dest: Path, made: Path, image: Image) -> None:
    listings = open_dest()
    settings = offline_settings(SETTINGS, [image], listings, dest)
    base = settings.base["debian-12"]
    assert read_layout(Path(str(base.path))).digest == read_layout(made).digest
    assert (settings.netrc, settings.cpython) == (None, SETTINGS.cpython)
    assert apply_known_bases(INPUTS, [image], listings) == INPUTS
    listing = replace(listings[image.name], base="debian@sha256:2")
    known = apply_known_bases(INPUTS, [image], {image.name: listing})
    assert known.bases["debian-12"].digest == "sha256:2"


def test_open_fetched_names_missing_and_damaged_files(
    open_dest: Open, dest: Path, image: Image, images: dict[str, Image], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"no files of tf-2\.1-cpu-debian\. .*imgbuild"):
        open_dest(images["tf-2.1-cpu-debian"])
    with pytest.raises(InputError, match=r"changed: downloads, packages\)"):
        open_dest(settings=_with(cpython={}))
    path = ContentStore(dest).path(sha256(b"deb"))
    path.write_bytes(b"bad")
    with pytest.raises(InputError, match="was damaged since it was fetched"):
        offline_contexts(open_dest()[image.name], dest, tmp_path / "cache")
    lacks = r"lacks g\+\+_4%3a12_amd64\.deb \(apt-package, sha\w+ \w+\) of"
    path.write_bytes(b"de")
    with pytest.raises(InputError, match=lacks):
        open_dest()
    path.unlink()
    with pytest.raises(InputError, match=lacks):
        open_dest()
    ContentStore(dest).path(sha256(b"wheel")).unlink()
    with pytest.raises(InputError, match=r"lacks h5py.* and 1 more of tf-2\.2-cpu-debian"):
        open_dest()


def test_a_folder_of_today_is_no_snapshot_nor_the_reverse(open_dest: Open, dest: Path) -> None:
    mirrors = {"debian": {"url": "http://m/", "snapshot": "20261101T000000Z"}}
    with pytest.raises(InputError, match=r"changed: snapshot\)"):
        open_dest(settings=_with(mirrors=mirrors))
    _change_listing(dest, request={**_listed(dest, "request"), "snapshot": "x"})
    with pytest.raises(InputError, match=r"changed: snapshot\)"):
        open_dest()


def test_a_base_that_the_settings_pin_is_no_other(
    open_dest: Open, dest: Path, image: Image
) -> None:
    """The listing is in the folder, too: it does not say what a base should be."""
    own = read_layout(dest / "base" / "debian-12-x").engine_ids[1]
    other = "sha256:" + "0" * 64

    def pinned(digest: str) -> Settings:
        return _with(base={"debian-12": {"from": "registry", "image": f"debian@{digest}"}})

    for digest, listed in ((other, ""), (own, f"debian@{other}")):
        _change_listing(dest, base=listed)
        with pytest.raises(InputError, match=r"base/debian-12-x .* debian@sha256:"):
            open_dest(settings=pinned(digest))
    _change_listing(dest, base=f"debian@{own}")
    assert open_dest(settings=pinned(own))[image.name].base == f"debian@{own}"


def test_open_fetched_prefers_a_layout_of_settings(
    open_dest: Open, dest: Path, image: Image
) -> None:
    """Nor is a digest that the folder names for its own that of this one."""
    _change_listing(dest, base=f"debian@{read_layout(dest / 'base' / 'debian-12-x').engine_ids[1]}")
    settings = _with(base={"debian-12": {"from": "layout", "path": "/srv/base"}})
    listings = open_dest(settings=settings)
    assert offline_settings(settings, [image], listings, dest).base == settings.base
    assert apply_known_bases(INPUTS, [image], listings) == INPUTS


def test_what_no_signature_says_is_there_to_compare(
    open_dest: Open, dest: Path, image: Image
) -> None:
    """How old the packages are, which lists there are, and which base image."""
    contents = open_dest()[image.name].contents(dest)
    said = "base image debian-12-x, stable of 01 Jan 2020 00:00:00 UTC"
    assert re.fullmatch(rf"{image.name} sha256:[0-9a-f]{{64}}: {said}", contents)
    items = _listed(dest, "items")
    for left_out in ("Packages", "Python-3.6.15.tar.xz"):
        _change_listing(dest, items=[one for one in items if not one["name"].endswith(left_out)])
        listing = read_listing(dest, image.name)
        assert listing
        assert listing.contents(dest) != contents
        assert listing.contents(dest).endswith(said)


def test_open_fetched_uses_the_keyring_of_a_mirror(
    open_dest: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEYRINGS, "debian", (OTHER_KEY, "debian-archive-keyring"))
    with pytest.raises(InputError, match=r"gpgv refuses .* its own key, set its `keyring`\."):
        open_dest()
    mirror = {"url": "https://mirror.example/debian", "keyring": str(SIGNED / "keyring.gpg")}
    assert open_dest(settings=_with(mirrors={"debian": mirror}))


def test_a_base_under_another_name_is_refused(open_dest: Open, dest: Path) -> None:
    """Loaded it would take that tag from another image."""
    assert open_dest()
    path = dest / "base" / "debian-12-x" / "manifest.json"
    path.write_text(path.read_text().replace("imgbuild/base:", "imgbuild/tensorflow:"))
    with pytest.raises(InputError, match=r"base image in .*debian-12-x .* its original name"):
        open_dest()


@pytest.mark.parametrize(
    ("kind", "name", "text", "said"),
    [
        (Kind.PYTHON, "h5py-2.10.0-py3-none-any.whl", "evil", "neither in images/locks"),
        (Kind.CONDA, "python-3.6.2-0.tar.bz2", "evil", "neither in images/locks"),
        (Kind.APT_PACKAGE, "g++_4%3a12_amd64.deb", "evil", "no signed list of the archive"),
        (Kind.APT_LIST, f"{START}main_binary-amd64_Packages", "evil", "no signed list of the arch"),
        (Kind.APT_MIRRORS, "upstreams", "debian http://x/#e;#\n", "not NAME URL"),
        (Kind.APT_MIRRORS, "upstreams", "debian http://x/\vdebian x/\n", "not NAME URL"),
    ],
)
def test_a_listing_that_names_other_files_is_not_believed(  # noqa: PLR0913, PLR0917 - a case
    open_dest: Open, dest: Path, kind: Kind, name: str, text: str, said: str
) -> None:
    forged = asdict(stored(text.encode(), dest, kind, name))
    others = [one for one in _listed(dest, "items") if one["name"] != name]
    _change_listing(dest, items=[*others, forged])
    with pytest.raises(InputError, match=said):
        open_dest()


def test_missing_gpgv_or_keys_name_their_packages(
    open_dest: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(KEYRINGS, "debian", (tmp_path / "none.gpg", "debian-archive-keyring"))
    with pytest.raises(MachineError, match="apt-get install -y debian-archive-keyring`"):
        open_dest()
    monkeypatch.setattr("imgbuild.inputs.fetched.find_program", lambda _: None)
    with pytest.raises(MachineError, match="apt-get install -y gpgv debian-archive-keyring`"):
        open_dest()


ITEM = {"kind": "download", "name": "a", "url": "", "sha256": "a" * 64}


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 1},
        {"items": [{"kind": "download"}]},
        {"items": [{**ITEM, "kind": "x"}]},
        *({"items": [{**ITEM, "name": name}]} for name in ("", ".a", "a/b", "../a", "a\n")),
        *({"items": [{**ITEM, "sha256": digest}]} for digest in ("../../etc", "0" * 63, "A" * 64)),
        {"layout": "../a"},
        {"more": 1},
    ],
)
def test_what_is_no_listing_is_refused(open_dest: Open, dest: Path, change: dict[str, Any]) -> None:
    """A folder may come from another machine: no name in it leads out of it."""
    _change_listing(dest, **change)
    with pytest.raises(InputError, match=r"\.json is no listing of this imgbuild") as caught:
        open_dest()
    assert "Value error" not in str(caught.value)


def test_every_lock_is_compared(images: dict[str, Image]) -> None:
    """Also the headers of CUDA, of an image whose MPI is in no lock."""
    image = images["tf-2.12-gpu-debian"]
    request = fetch_request(image, Project(ROOT), SETTINGS)
    assert {"lock", "build lock", "CUDA lock"} == {key for key in request if key.endswith("lock")}
