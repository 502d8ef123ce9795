"""The layout of a tiny root file system: right digests, the same bytes twice, damage seen."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from imgbuild.inputs.oci_layout import (
    BaseLayout,
    DamagedLayoutError,
    read_layout,
    write_archive,
    write_layout,
)

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
    return write(tmp_path / "layout", rootfs).path


def write(folder: Path, rootfs: Path) -> BaseLayout:
    write_layout(folder, rootfs, name="t", epoch=EPOCH)
    return read_layout(folder)


def parsed(layout: Path, digest: str) -> Any:
    return json.loads((layout / "blobs" / digest.replace(":", "/")).read_bytes())


def test_the_image_is_the_root_file_system(layout: Path, rootfs: Path) -> None:
    config = parsed(layout, read_layout(layout).image_id)
    plain = hashlib.sha256(rootfs.read_bytes()).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{plain}"]
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    assert config["created"] == "2026-01-01T00:00:00Z"
    assert config["config"]["Cmd"] == ["bash"]
    assert config["config"]["Env"][0].startswith("PATH=/usr/local/sbin:")
    (top,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    (layer,) = parsed(layout, top["digest"])["layers"]
    packed = (layout / "blobs" / layer["digest"].replace(":", "/")).read_bytes()
    assert gzip.decompress(packed) == rootfs.read_bytes()
    assert packed[4:8] == bytes(4), "the time in the gzip header"


def test_same_input_gives_the_same_archive(tmp_path: Path, rootfs: Path) -> None:
    archives = [tmp_path / name for name in ("one.tar", "two.tar")]
    for path in archives:
        write_archive(write(path.with_suffix(""), rootfs).path, path)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        assert {"manifest.json", "index.json", "oci-layout"} <= {*archive.getnames()}
        stored = archive.extractfile("manifest.json")
        assert stored is not None
        assert stored.read() == (tmp_path / "one" / "manifest.json").read_bytes()


@pytest.mark.usefixtures("no_collection")
def test_every_damaged_or_missing_file_is_seen(layout: Path) -> None:
    for path in sorted(path for path in layout.rglob("*") if path.is_file()):
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(DamagedLayoutError):
            read_layout(layout)
        path.unlink()
        with pytest.raises(DamagedLayoutError):
            read_layout(layout)
        path.write_text("[" * 100_000)
        with pytest.raises(DamagedLayoutError):
            read_layout(layout)
        path.write_bytes(content)
    read_layout(layout)
    path = max((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"!")
    with pytest.raises(DamagedLayoutError, match="not what its digest says"):
        read_layout(layout)
    path.write_bytes(content)
    docker = json.loads((layout / "manifest.json").read_bytes())
    docker[0]["Config"] = "blobs/sha256/" + "0" * 64
    (layout / "manifest.json").write_text(json.dumps(docker))
    with pytest.raises(DamagedLayoutError, match="another image"):
        read_layout(layout)
    (layout / "index.json").write_text('{"manifests": [{"digest": 1}]}')
    with pytest.raises(DamagedLayoutError):
        read_layout(layout)
