"""A cache in a folder: what comes out is what went in, or nothing."""

import gzip
import json
import os
import threading
from pathlib import Path

import pytest
from cached_images import add_image, wanted
from fake_engine import FakeEngine

from imgbuild.caches.blobs import BlobStore
from imgbuild.caches.folder import FolderCache
from imgbuild.caches.protocol import CacheError, Kind
from imgbuild.caches.saved import keep_saved
from imgbuild.caches.stream import as_file

SHARED, ONE, TWO = os.urandom(3 << 20), b"one" * 1000, b"two" * 1000
FIRST, SECOND = wanted("tf-2.2-cpu-debian", "a"), wanted("tf-2.3-cpu-debian", "b")


class Machine:
    """An engine and what its cache said; all machines share the folder."""

    def __init__(self, folder: Path) -> None:
        self.engine = FakeEngine()
        self.said: list[str] = []
        self.cache = FolderCache(folder, self.engine, self.said.append)

    def layers(self, image_id: str) -> list[bytes]:
        return [
            gzip.decompress(layer) if layer[:2] == b"\x1f\x8b" else layer
            for layer in self.engine.contents[image_id][1]
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def kept(folder: Path) -> Path:
    """Return a folder that holds two images."""
    machine = Machine(folder)
    machine.cache.save_image(FIRST, add_image(machine.engine, FIRST, SHARED, ONE))
    machine.cache.save_image(SECOND, add_image(machine.engine, SECOND, SHARED, TWO))
    return folder


def _entry(folder: Path, key: str = FIRST.key) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads(
        (folder / "images" / f"{key}.json").read_text()
    )
    return found


def _blob(folder: Path, number: int) -> Path:
    return folder / "blobs" / _entry(folder)["layers"][number]["digest"].replace(":", "/")


def test_a_folder_that_is_not_there_is_an_empty_cache(folder: Path, tmp_path: Path) -> None:
    machine = Machine(folder)
    assert not machine.cache.has_image(FIRST)
    assert machine.cache.restore([FIRST]) == []
    assert machine.cache.read(Kind.WHEEL, "k", tmp_path) is None
    assert not machine.said
    assert not folder.exists()


def test_images_come_back_with_their_labels_and_without_a_name(kept: Path) -> None:
    machine = Machine(kept)
    assert machine.cache.has_image(FIRST)
    assert not machine.cache.has_image(wanted(inputs="c"))
    assert machine.cache.restore([FIRST, wanted(inputs="c"), SECOND]) == [FIRST, SECOND]
    first, second = machine.engine.stored.values()
    assert FIRST.fits(first.labels)
    assert SECOND.fits(second.labels)
    assert first.tags == second.tags == ()
    assert machine.layers(first.id) == [SHARED, ONE]
    assert machine.layers(second.id) == [SHARED, TWO]
    assert machine.engine.calls.count("load") == 1


def test_layers_are_kept_once_and_packed_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _entry(kept)["layers"][0] == _entry(kept, SECOND.key)["layers"][0]
    assert len(list(kept.glob("blobs/sha256/*"))) == 5  # three layers, two configurations
    machine = Machine(kept)
    packed: list[object] = []
    monkeypatch.setattr(BlobStore, "add_layer", lambda *found: packed.append(found))
    third = wanted(inputs="c")
    image_id = add_image(machine.engine, third, SHARED, TWO)
    machine.cache.save_image(third, image_id)
    assert not packed
    assert machine.cache.restore([third]) == [third]


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "entry", "labels", "no digest"])
def test_what_is_damaged_is_told_not_used_and_replaced(kept: Path, damage: str) -> None:
    blob, path = _blob(kept, 1), kept / "images" / f"{FIRST.key}.json"
    if damage == "changed":
        blob.write_bytes(bytes([*blob.read_bytes()[:-1], blob.read_bytes()[-1] ^ 1]))
    elif damage == "cut":
        blob.write_bytes(blob.read_bytes()[:-1])
    elif damage == "gone":
        blob.unlink()
    elif damage == "entry":
        path.write_text(path.read_text()[:-20])
    elif damage == "no digest":
        path.write_text(path.read_text().replace("sha256:", "../"))
    else:
        path.write_text((kept / "images" / f"{SECOND.key}.json").read_text())
    machine = Machine(kept)
    assert machine.cache.restore([FIRST, SECOND]) == [SECOND]
    assert len(machine.said) == 1
    assert FIRST.name in machine.said[0]
    assert not machine.cache.has_image(FIRST)
    machine.cache.save_image(FIRST, add_image(machine.engine, FIRST, SHARED, ONE))
    assert Machine(kept).cache.restore([FIRST]) == [FIRST]


def test_another_image_is_not_kept_under_a_name(folder: Path) -> None:
    machine = Machine(folder)
    image_id = add_image(machine.engine, FIRST, ONE, name="tf-9")
    with pytest.raises(CacheError, match="another image"):
        machine.cache.save_image(FIRST, image_id)
    assert not machine.cache.has_image(FIRST)


def test_what_breaks_off_leaves_no_entry_and_no_half_blob(folder: Path) -> None:
    machine = Machine(folder)
    image_id = add_image(machine.engine, FIRST, SHARED)
    whole = b"".join(machine.engine.save(image_id))

    def broken(_reference: str) -> object:
        yield whole[: 2 << 20]
        raise KeyboardInterrupt

    machine.engine.save = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        machine.cache.save_image(FIRST, image_id)
    assert not list(folder.glob("images/*"))
    assert not list(folder.glob("blobs/sha256/*"))
    assert not list(folder.glob("blobs/sha256/.*"))


def test_files_come_back_under_their_names(folder: Path, tmp_path: Path) -> None:
    machine = Machine(folder)
    wheel = tmp_path / "horovod-1.whl"
    wheel.write_bytes(b"wheel")
    machine.cache.write(Kind.WHEEL, "k", wheel)
    assert machine.cache.has(Kind.WHEEL, "k")
    assert not machine.cache.has(Kind.REPORT, "k")
    out = tmp_path / "out"
    out.mkdir()
    found = Machine(folder).cache.read(Kind.WHEEL, "k", out)
    assert found == out / "horovod-1.whl"
    assert found.read_bytes() == b"wheel"


def test_a_file_is_replaced_and_a_damaged_one_is_none(folder: Path, tmp_path: Path) -> None:
    machine = Machine(folder)
    for text in ("old", "new"):
        (tmp_path / "report.json").write_text(text)
        machine.cache.write(Kind.REPORT, "k", tmp_path / "report.json")
    found = machine.cache.read(Kind.REPORT, "k", tmp_path)
    assert found
    assert found.read_text() == "new"
    (blob,) = folder.glob("blobs/sha256/*")
    blob.write_text("bad")
    assert machine.cache.read(Kind.REPORT, "k", tmp_path) is None
    assert "the report k, but not whole" in machine.said[0]


def test_the_name_of_a_kept_file_leads_nowhere_else(folder: Path, tmp_path: Path) -> None:
    machine = Machine(folder)
    (tmp_path / "x.whl").write_bytes(b"x")
    machine.cache.write(Kind.WHEEL, "k", tmp_path / "x.whl")
    entry = folder / "files" / "wheel-k.json"
    entry.write_text(entry.read_text().replace("x.whl", "../../evil.whl"))
    out = tmp_path / "out"
    out.mkdir()
    assert machine.cache.read(Kind.WHEEL, "k", out) == out / "evil.whl"


def test_a_cache_that_cannot_be_written_is_read(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _blob(kept, 1).write_bytes(b"bad")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    machine = Machine(kept)
    assert machine.cache.restore([FIRST, SECOND]) == [SECOND]


def test_several_writers_at_once(folder: Path) -> None:
    machines = [Machine(folder) for _ in range(4)]
    ids = [add_image(machine.engine, FIRST, SHARED, ONE) for machine in machines]
    pairs = zip(machines, ids, strict=True)
    threads = [
        threading.Thread(target=machine.cache.save_image, args=(FIRST, image_id))
        for machine, image_id in pairs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(folder.glob("blobs/sha256/*"))) == 3
    assert not list(folder.glob("blobs/sha256/.*"))
    assert Machine(folder).cache.restore([FIRST]) == [FIRST]


def test_archives_of_old_engines_have_links(tmp_path: Path) -> None:
    """Before 25, a layer that comes twice is a link to the first. Source: moby, image/tarexport."""
    import hashlib
    import io
    import tarfile

    digest = f"sha256:{hashlib.sha256(ONE).hexdigest()}"
    config = json.dumps({"rootfs": {"diff_ids": [digest]}}).encode()
    manifest = [{"Config": "c.json", "RepoTags": None, "Layers": ["b/layer.tar"]}]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in {
            "a/layer.tar": ONE,
            "c.json": config,
            "manifest.json": json.dumps(manifest).encode(),
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("b/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../a/layer.tar"
        tar.addfile(link)
    store = BlobStore(tmp_path)
    saved = keep_saved([out.getvalue()], store, {})
    assert gzip.decompress(store.path(saved.layers[digest]).read_bytes()) == ONE


@pytest.mark.parametrize("content", [b"", b"no archive", bytes(10240)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CacheError, match="not understood"):
        keep_saved([content], BlobStore(tmp_path), {})


def test_layers_that_are_packed_already_stay_so(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    gz, zstd = gzip.compress(ONE), b"\x28\xb5\x2f\xfd" + ONE
    assert store.path(store.add_layer(as_file([gz]))).read_bytes() == gz
    assert store.add_layer(as_file([zstd])).media_type.endswith("+zstd")
