"""The layout of a tiny root file system: right digests, the same bytes twice, damage seen."""

import gzip
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.inputs.oci_layout import read_layout, unpack_archive, write_archive, write_layout

EPOCH = 1767225600


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    path = tmp_path / "rootfs.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("./etc/os-release")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"ID=x"))
    return path


@pytest.fixture
def layout(tmp_path: Path, rootfs: Path) -> Path:
    write_layout(tmp_path / "layout", rootfs, name="t", epoch=EPOCH)
    return tmp_path / "layout"


def test_same_input_gives_the_same_archive(layout: Path, tmp_path: Path, rootfs: Path) -> None:
    write_layout(tmp_path / "again", rootfs, name="t", epoch=EPOCH)
    archives = [tmp_path / name for name in ("one.tar", "two.tar")]
    for folder, path in zip((layout, tmp_path / "again"), archives, strict=True):
        write_archive(folder, path)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        assert {"manifest.json", "index.json", "oci-layout"} <= {*archive.getnames()}
    blobs = [path.read_bytes() for path in layout.rglob("blobs/sha256/*")]
    (packed,) = (content for content in blobs if content.startswith(b"\x1f\x8b"))
    assert gzip.decompress(packed) == rootfs.read_bytes()
    assert packed[4:8] == bytes(4), "the time in the gzip header"
    assert any(b'"created":"2026-01-01T00:00:00Z"' in content for content in blobs)


def test_an_archive_is_unpacked_without_what_is_no_layout(layout: Path, tmp_path: Path) -> None:
    archive, folder = tmp_path / "saved.tar", tmp_path / "inside" / "unpacked"
    write_archive(layout, archive)
    with tarfile.open(archive, "a") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
        link = tarfile.TarInfo("oci-layout")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    unpack_archive(archive, folder)
    assert read_layout(folder) == replace(read_layout(layout), layout=folder)
    assert [*folder.parent.iterdir()] == [folder]


def test_unpack_archive_refuses_a_packed_one(layout: Path, tmp_path: Path) -> None:
    """No engine packs one as a whole, and it could unpack to a full disk."""
    archive = tmp_path / "saved.tar"
    write_archive(layout, archive)
    archive.write_bytes(gzip.compress(archive.read_bytes()))
    with pytest.raises(tarfile.ReadError):
        unpack_archive(archive, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


@pytest.mark.usefixtures("no_collection")
def test_every_damaged_or_missing_file_is_seen(layout: Path) -> None:
    for path in sorted(path for path in layout.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for damaged in (content[:-1], content[:-1] + b"!", b"[" * 100_000, None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            with pytest.raises(InputError):
                read_layout(layout)
        path.write_bytes(content)
    read_layout(layout)
    docker = json.loads((layout / "manifest.json").read_bytes())
    docker[0]["Config"] = "blobs/sha256/" + "0" * 64
    (layout / "manifest.json").write_text(json.dumps(docker))
    with pytest.raises(InputError, match="another image"):
        read_layout(layout)
    (layout / "index.json").write_text('{"manifests": [{"digest": 1}]}')
    with pytest.raises(InputError):
        read_layout(layout)
