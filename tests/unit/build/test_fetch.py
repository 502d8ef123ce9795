"""Completing a folder: only what is missing is asked for."""

from pathlib import Path

import pytest

from imgbuild.build.fetch import _copy_layout, fetch_files, find_listing
from imgbuild.core.errors import MachineError
from imgbuild.core.files import ContentStore, sha256
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.core.sources import Kind, Source
from imgbuild.dockerfile.stages import Stage
from imgbuild.inputs.download import show_progress
from imgbuild.inputs.fetched import Listing, fetch_request, write_listing
from imgbuild.inputs.oci_layout import read_layout, write_layout
from imgbuild.inputs.upstream_files import apt_items
from imgbuild.matrix.images import Image
from imgbuild.net.sites import Sites
from support.faulty_server import FaultyServer, Reply

SETTINGS = Settings()


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("imgbuild.build.fetch.is_whole", lambda *_: True)
    return tmp_path


@pytest.fixture
def listing(server: FaultyServer, image: Image, project: Project, folder: Path) -> Listing:
    """Return a listing of two files on a server and one of this machine."""
    bodies = {"a.whl": b"wheel", "b.deb": b"package"}
    items = tuple(
        Source(name, server.give(f"/{name}", Reply(body)), sha256(body), kind=Kind.PYTHON)
        for name, body in bodies.items()
    )
    made = Source("InRelease", "", sha256(b"list"), 4, Kind.APT_LIST)
    ContentStore(folder).put(made.sha256, lambda part: part.write_bytes(b"list"))
    request = fetch_request(image, project, SETTINGS)
    return Listing(image.name, request, "", "debian-12-1", (*items, made))


def test_what_was_interrupted_goes_on(
    server: FaultyServer, listing: Listing, folder: Path, project: Project, image: Image
) -> None:
    write_listing(listing, folder)
    server.replies["/b.deb"] = [Reply(b"", 500)]
    with pytest.raises(MachineError, match=r"b\.deb cannot be fetched"):
        fetch_files([listing], Sites(), folder, show_progress())
    server.give("/b.deb", Reply(b"package"))
    known = find_listing(image, project, SETTINGS, folder)
    assert known == listing
    assert fetch_files([known], Sites(), folder, show_progress())[1] <= 2


def test_known_listing_needs_inputs_and_whole_files(
    listing: Listing,
    project: Project,
    folder: Path,
    image: Image,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_listing(image, project, SETTINGS, folder) is None
    write_listing(listing, folder)
    assert find_listing(image, project, SETTINGS, folder) == listing
    other = Settings.model_validate({"substitutes": {"Python-3.6.15.tar.xz": "0" * 64}})
    assert find_listing(image, project, other, folder) is None
    with monkeypatch.context() as damaged:
        damaged.setattr("imgbuild.build.fetch.is_whole", lambda *_: False)
        assert find_listing(image, project, SETTINGS, folder) is None
    ContentStore(folder).path(listing.items[2].sha256).unlink()
    assert find_listing(image, project, SETTINGS, folder) is None


def test_fetch_copies_a_damaged_base_again(
    tmp_path: Path,
) -> None:
    rootfs, made = tmp_path / "rootfs.tar", tmp_path / "made"
    rootfs.write_bytes(b"any")
    write_layout(made, rootfs, name="debian-12", epoch=0)
    copied = _copy_layout(made, read_layout(made).reference, tmp_path / "base")
    (layer,) = (path for path in copied.rglob("blobs/sha256/*") if path.read_bytes()[:1] == b"\x1f")
    content = layer.read_bytes()
    layer.write_bytes(content[:-1] + b"!")
    assert _copy_layout(made, read_layout(made).reference, tmp_path / "base") == copied
    assert layer.read_bytes() == content


def test_what_apt_plans_without_a_sha256_is_refused(tmp_path: Path) -> None:
    (tmp_path / "os" / "lists").mkdir(parents=True)
    (tmp_path / "os" / "upstreams").touch()
    (tmp_path / "os" / "uris").write_text(f"'http://x/y.deb' y.deb 14 MD5Sum:{'a' * 32}\n")
    with pytest.raises(MachineError, match="package without a sha256"):
        list(apt_items(tmp_path, [Stage("os", "base", "", ())], ContentStore(tmp_path / "store")))
