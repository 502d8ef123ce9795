"""The list of an image's inputs: written, read, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from imgbuild.errors import InputError
from imgbuild.files import ContentStore
from imgbuild.inputs.fetched import (
    Item,
    Kind,
    Listing,
    listing_path,
    read_listing,
    write_listing,
)

ITEMS = (
    Item(Kind.DOWNLOAD, "a.tar", "https://x.example/a.tar", "a" * 64, 5),
    Item(Kind.APT_PACKAGE, "g++_4%3a12.2.0-3_amd64.deb", "http://x.example/g", "b" * 64),
    Item(Kind.BASE, "manifest.json", "", "c" * 64, 400),
)
LISTING = Listing("tf-x", {"lock": "1"}, "ubuntu@sha256:" + "d" * 64, ITEMS)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_listing(tmp_path, "tf-x") is None
    write_listing(LISTING, tmp_path)
    assert read_listing(tmp_path, "tf-x") == LISTING
    document = json.loads((tmp_path / "images" / "tf-x.json").read_text())
    assert document["items"][0] == {
        "kind": "download",
        "name": "a.tar",
        "sha256": "a" * 64,
        "size": 5,
        "url": "https://x.example/a.tar",
    }


def test_what_is_missing(tmp_path: Path) -> None:
    path = ContentStore(tmp_path).path("a" * 64)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"12345")
    assert [item.name for item in LISTING.missing(tmp_path)] == [ITEMS[1].name, "manifest.json"]
    path.write_bytes(b"1234")
    assert len(LISTING.missing(tmp_path)) == 3
    assert LISTING.manifest == "c" * 64


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"items": [{"kind": "download"}]},
        {"items": [{"kind": "x", "name": "a", "url": "", "sha256": "a" * 64}]},
        {"items": [{"kind": "download", "name": "../a", "url": "", "sha256": "a" * 64}]},
        {"items": [{"kind": "download", "name": "a", "url": "", "sha256": "../../etc"}]},
        {"more": 1},
    ],
)
def test_what_is_no_listing_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A folder may come from another machine: no name in it leads out of it."""
    write_listing(LISTING, tmp_path)
    path = listing_path(tmp_path, "tf-x")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=r"tf-x\.json is no listing of this imgbuild"):
        read_listing(tmp_path, "tf-x")
