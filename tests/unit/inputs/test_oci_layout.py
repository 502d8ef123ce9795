"""The layout of a tiny root file system: right digests, the same bytes twice, damage seen."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from imgbuild.inputs.oci_layout import (
    DamagedLayoutError,
    ImageIds,
    read_layout,
    short_id,
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
    write(tmp_path / "layout", rootfs)
    return tmp_path / "layout"


def write(folder: Path, rootfs: Path) -> ImageIds:
    return write_layout(folder, rootfs, repository="imgbuild/base", tag="t-{id}", epoch=EPOCH)


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def test_every_blob_is_named_by_its_content(layout: Path) -> None:
    blobs = list((layout / "blobs" / "sha256").iterdir())
    assert len(blobs) == 3
    for path in blobs:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def test_config_names_the_uncompressed_layer(layout: Path, rootfs: Path) -> None:
    ids, _ = read_layout(layout)
    config = json.loads(blob(layout, ids.config).read_bytes())
    plain = hashlib.sha256(rootfs.read_bytes()).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{plain}"]
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    assert config["created"] == "2026-01-01T00:00:00Z"
    assert config["config"]["Cmd"] == ["bash"]
    assert config["config"]["Env"][0].startswith("PATH=/usr/local/sbin:")


def test_layer_is_the_root_file_system(layout: Path, rootfs: Path) -> None:
    ids, _ = read_layout(layout)
    manifest = json.loads(blob(layout, ids.manifest).read_bytes())
    packed = blob(layout, manifest["layers"][0]["digest"]).read_bytes()
    assert gzip.decompress(packed) == rootfs.read_bytes()
    assert packed[4:8] == bytes(4), "the time in the gzip header"


def test_docker_and_containerd_find_the_same_name(layout: Path) -> None:
    ids, reference = read_layout(layout)
    assert reference == f"imgbuild/base:t-{short_id(ids.config)}"
    index = json.loads((layout / "index.json").read_bytes())
    names = index["manifests"][0]["annotations"]
    assert names["io.containerd.image.name"].endswith(f"/{reference}")
    assert names["org.opencontainers.image.ref.name"] == reference.rpartition(":")[2]


def test_same_input_gives_the_same_archive(tmp_path: Path, rootfs: Path) -> None:
    archives = []
    for name in ("one", "two"):
        write(tmp_path / name, rootfs)
        out = io.BytesIO()
        write_archive(tmp_path / name, out)
        archives.append(out.getvalue())
    assert archives[0] == archives[1]


def test_archive_holds_the_layout_at_its_top(layout: Path) -> None:
    out = io.BytesIO()
    write_archive(layout, out)
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        names = archive.getnames()
        assert {"manifest.json", "index.json", "oci-layout"} <= set(names)
        stored = archive.extractfile("manifest.json")
        assert stored is not None
        assert stored.read() == (layout / "manifest.json").read_bytes()


def test_another_epoch_is_another_image(tmp_path: Path, rootfs: Path) -> None:
    first = write(tmp_path / "one", rootfs)
    second = write_layout(
        tmp_path / "two", rootfs, repository="imgbuild/base", tag="t-{id}", epoch=EPOCH + 1
    )
    assert first.config != second.config


def test_every_damaged_or_missing_file_is_seen(layout: Path) -> None:
    for path in sorted(path for path in layout.rglob("*") if path.is_file()):
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(DamagedLayoutError):
            read_layout(layout)
        path.unlink()
        with pytest.raises(DamagedLayoutError):
            read_layout(layout)
        path.write_bytes(content)
    read_layout(layout)


def test_changed_byte_of_the_same_length_is_seen(layout: Path) -> None:
    path = max((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedLayoutError, match="not what its digest says"):
        read_layout(layout)


def test_docker_manifest_of_another_image_is_seen(layout: Path) -> None:
    path = layout / "manifest.json"
    docker = json.loads(path.read_bytes())
    docker[0]["Config"] = "blobs/sha256/" + "0" * 64
    path.write_text(json.dumps(docker))
    with pytest.raises(DamagedLayoutError, match="another image"):
        read_layout(layout)
