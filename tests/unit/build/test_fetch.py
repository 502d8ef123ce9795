"""Completing a folder: only what is missing is asked for."""

import hashlib
from pathlib import Path

import pytest
from faulty_server import FaultyServer, Reply

from imgbuild.build.fetch import FetchJob, _planned_items, fetch_files, known_listing
from imgbuild.dockerfile.stages import Stage
from imgbuild.errors import MachineError
from imgbuild.files import ContentStore
from imgbuild.inputs.download_progress import DownloadProgress
from imgbuild.inputs.fetched import (
    Item,
    Kind,
    Listing,
    fetch_request,
    read_listing,
    store_file,
    write_listing,
)
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import Settings, Sites

SETTINGS = Settings()


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


@pytest.fixture
def job(project: Project, tmp_path: Path) -> FetchJob:
    return FetchJob(project, SETTINGS, Sites(), tmp_path)


@pytest.fixture
def listing(server: FaultyServer, image: Image, job: FetchJob) -> Listing:
    """Return a listing of two files on a server and one of this machine."""
    bodies = {"a.whl": b"wheel", "b.deb": b"package"}
    items = tuple(
        Item(Kind.PYTHON, name, server.give(f"/{name}", Reply(b)), hashlib.sha256(b).hexdigest())
        for name, b in bodies.items()
    )
    source = job.folder / "InRelease"
    source.write_text("list")
    made = store_file(source, ContentStore(job.folder), Kind.APT_LIST, "InRelease")
    request = fetch_request(image, job.project, SETTINGS)
    return Listing(image.name, request, "", (*items, made))


def test_a_second_run_asks_for_nothing(
    server: FaultyServer, listing: Listing, job: FetchJob
) -> None:
    assert fetch_files([listing], job, DownloadProgress()) == 2
    assert fetch_files([listing, listing], job, DownloadProgress()) == 0
    assert len(server.asked) == 2
    written = read_listing(job.folder, listing.image)
    assert written
    assert ([item.size for item in written.items], written.size) == ([5, 7, 4], 16)
    ContentStore(job.folder).path(listing.items[0].sha256).unlink()
    assert fetch_files([listing], job, DownloadProgress()) == 1


def test_what_was_interrupted_goes_on(
    server: FaultyServer, listing: Listing, job: FetchJob, image: Image
) -> None:
    write_listing(listing, job.folder)
    server.replies["/b.deb"] = [Reply(b"", 500)]
    with pytest.raises(MachineError, match=r"b\.deb cannot be fetched"):
        fetch_files([listing], job, DownloadProgress())
    server.give("/b.deb", Reply(b"package"))
    known = known_listing(image, job)
    assert known == listing
    assert fetch_files([known], job, DownloadProgress()) <= 2


def test_a_listing_is_made_anew_when_its_inputs_changed_or_it_cannot_be_completed(
    listing: Listing, job: FetchJob, image: Image
) -> None:
    assert known_listing(image, job) is None
    write_listing(listing, job.folder)
    assert known_listing(image, job) == listing
    other = Settings.model_validate({"substitutes": {"Python-3.6.15.tar.xz": "0" * 64}})
    assert known_listing(image, FetchJob(job.project, other, Sites(), job.folder)) is None
    ContentStore(job.folder).path(listing.items[2].sha256).unlink()
    assert known_listing(image, job) is None


def test_what_apt_planned_is_read(tmp_path: Path) -> None:
    folder, store = tmp_path / "os", ContentStore(tmp_path / "store")
    (folder / "lists").mkdir(parents=True)
    (folder / "lists" / "archive_InRelease").write_text("list")
    (folder / "upstreams").write_text("debian https://m.example/debian\n")
    uri, name = "http://x.example/pool/g%2b%2b_12-3_amd64.deb", "g++_4%3a12-3_amd64.deb"
    (folder / "uris").write_text(f"'{uri}' {name} 1400 SHA256:{'a' * 64}\n")
    stages = [Stage("os", "base", "", ())]
    package, listed, mirrors = _planned_items(tmp_path, stages, store)
    assert package == Item(Kind.APT_PACKAGE, name, uri, "a" * 64, 1400)
    assert (listed.kind, listed.name, listed.size) == (Kind.APT_LIST, "archive_InRelease", 4)
    assert mirrors.kind is Kind.APT_MIRRORS
    assert store.path(mirrors.sha256).read_text().startswith("debian ")
    (folder / "uris").write_text(f"'http://x/y.deb' y.deb 14 MD5Sum:{'a' * 32}\n")
    with pytest.raises(MachineError, match="names a package without its sha256"):
        list(_planned_items(tmp_path, stages, store))
