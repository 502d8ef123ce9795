"""Images that imgbuild packs itself: what arrives, what is packed once, and what faults leave."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hand_made import config, docker_archive, tar

from imgbuild.caches.blobs import BlobStore, Packing
from imgbuild.engine.fake import VERSION, FakeEngine
from imgbuild.engine.stored import EngineVersion, StoredImage
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.parallel import in_parallel
from imgbuild.publishing.content import of_image
from imgbuild.publishing.packed_layers import PackedLayers
from imgbuild.publishing.packing import PackingSender
from imgbuild.publishing.sending import by_engine, packed
from imgbuild.registry.digest import digest_of
from imgbuild.registry.fake import MemoryRegistry
from imgbuild.registry.media_types import OCI_MANIFEST
from imgbuild.registry.patience import Patience
from imgbuild.zstd import unpacked

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

#: Larger than what is read as a document, as layers are.
BASE, ONE, TWO = (tar((name, name.encode() * 300_000)) for name in ("base", "one", "two"))
EMPTY = tar()


def diff_id(layer: bytes) -> str:
    return f"sha256:{hashlib.sha256(layer).hexdigest()}"


class StoppedError(Exception):
    """What ends a push in a test."""


@dataclass
class Bench:
    """An engine with images of some layers, a registry, and what sends from one to the other."""

    folder: Path
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    engine: FakeEngine = field(default_factory=FakeEngine)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin another push: only the notes are there from the one before."""
        store = BlobStore(self.folder / "work", Packing.ZSTD)
        self.layers = PackedLayers(self.registry, store, self.folder / "notes")

    def image(self, *layers: bytes) -> str:
        own = config(layers)
        image_id = digest_of(own)
        self.engine.stored[image_id] = StoredImage(
            image_id, layers=tuple(diff_id(layer) for layer in layers)
        )
        self.engine.archives[image_id] = docker_archive(layers)
        return image_id

    def send(self, image_id: str, tag: str = "1.0") -> None:
        sender = PackingSender(self.engine, self.layers, lambda _, text: self.told.append(text))
        sender.send("tf-2.2-cpu-debian", image_id, f"{self.registry.name}:{tag}")

    def sent(self) -> list[str]:
        """Return the digests of the files that were sent, in order."""
        calls = [call.rpartition(" ") for call in self.registry.calls]
        return [digest for call, _, digest in calls if call == "put file"]

    def content(self, tag: str) -> tuple[bytes, list[bytes]]:
        """Return the configuration and the unpacked layers that a tag stands for."""
        found = self.registry.manifest(tag)
        assert found
        document = found.document()
        kinds = {layer["mediaType"] for layer in document["layers"]}
        assert kinds <= {"application/vnd.oci.image.layer.v1.tar+zstd"}
        assert found.media_type == document["mediaType"] == OCI_MANIFEST
        blobs = self.registry.blobs
        for part in (document["config"], *document["layers"]):
            assert len(blobs[part["digest"]]) == part["size"]
        layers = [_unpacked(blobs[layer["digest"]]) for layer in document["layers"]]
        return blobs[document["config"]["digest"]], layers


def _unpacked(content: bytes) -> bytes:
    import io

    with unpacked(io.BytesIO(content)) as file:
        return file.read()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("layers", [(BASE, ONE), (BASE, EMPTY, ONE, EMPTY), (EMPTY,)])
def test_what_arrives_is_the_image(bench: Bench, layers: Sequence[bytes]) -> None:
    image_id = bench.image(*layers)
    bench.send(image_id)
    assert bench.content("1.0") == (config(layers), [*layers])
    found = bench.registry.manifest("1.0")
    assert found
    assert of_image(found, image_id)
    assert [*bench.layers.store.folder.iterdir()] == []


def test_how_far_it_is_is_told(bench: Bench) -> None:
    bench.send(bench.image(BASE, ONE))
    assert bench.told[0] == "0 MB read"
    assert "0 of 2 layers up" in bench.told
    assert bench.told[-1] == "1 of 2 layers up, 0 MB of the next"


def test_the_manifest_is_last(bench: Bench) -> None:
    bench.send(bench.image(BASE))
    put = [call for call in bench.registry.calls if call.startswith("put")]
    assert [call.split()[1] for call in put] == ["file", "blob", "1.0"]


@pytest.mark.parametrize("later", [False, True])
def test_a_layer_of_two_images_is_sent_once(bench: Bench, later: bool) -> None:
    bench.send(bench.image(BASE, ONE))
    if later:
        bench.begin()
    bench.send(bench.image(BASE, TWO), "2.0")
    assert len(bench.sent()) == 3
    assert bench.content("2.0")[1] == [BASE, TWO]


def test_two_at_once_send_what_they_share_once(bench: Bench) -> None:
    images = {"1.0": bench.image(BASE, ONE), "2.0": bench.image(BASE, TWO)}
    both = threading.Barrier(2)

    def work(tag: str) -> None:
        both.wait(5)
        bench.send(images[tag], tag)

    in_parallel(work, [*images], 2)
    assert sorted(bench.sent()) == sorted(set(bench.sent()))
    assert bench.content("1.0")[1] == [BASE, ONE]
    assert bench.content("2.0")[1] == [BASE, TWO]


@pytest.mark.parametrize("damage", ["lost", "note", "kind"])
def test_what_is_noted_wrongly_is_packed_again(bench: Bench, damage: str) -> None:
    bench.send(bench.image(BASE, ONE))
    if damage == "lost":
        for digest in bench.sent():
            del bench.registry.blobs[digest]
    for note in bench.layers.notes.iterdir():
        if damage != "lost":
            note.write_text('{"digest"' if damage == "note" else "[]")
    bench.begin()
    bench.send(bench.image(BASE, TWO), "2.0")
    assert bench.content("2.0")[1] == [BASE, TWO]


def test_a_tag_that_was_taken_meanwhile_stays(bench: Bench) -> None:
    other = bench.registry.add_image("other")

    def take(call: str) -> None:
        if call.startswith("put file"):
            bench.registry.tagged["1.0"] = other.digest

    bench.registry.before = take
    with pytest.raises(CheckFailedError, match="is there already, for another image"):
        bench.send(bench.image(BASE))
    assert bench.registry.tagged["1.0"] == other.digest


def test_one_that_is_stopped_writes_no_manifest(bench: Bench) -> None:
    image_id = bench.image(BASE, ONE)

    def stop(_name: str, text: str) -> None:
        if text.startswith("1 of 2"):
            raise StoppedError

    sender = PackingSender(bench.engine, bench.layers, stop)
    with pytest.raises(StoppedError):
        sender.send("tf", image_id, f"{bench.registry.name}:1.0")
    assert bench.registry.tagged == {}
    bench.send(image_id)  # the locks are free, and what is up stays up
    assert len(bench.sent()) == 2
    assert bench.content("1.0")[1] == [BASE, ONE]


def test_an_image_that_is_gone(bench: Bench) -> None:
    with pytest.raises(MachineError, match="was removed from the engine in the meantime"):
        bench.send(f"sha256:{'0' * 64}")


def test_an_engine_that_saves_another_configuration(bench: Bench) -> None:
    image_id = bench.image(BASE)
    bench.engine.archives[image_id] = docker_archive((BASE,), ("another history",))
    with pytest.raises(MachineError, match="push with --compression gzip"):
        bench.send(image_id)
    assert bench.registry.tagged == {}


def test_an_archive_that_is_none(bench: Bench) -> None:
    image_id = bench.image(BASE)
    bench.engine.archives[image_id] = b"no archive"
    with pytest.raises(MachineError, match="cannot be packed: what the engine saves"):
        bench.send(image_id)


def test_no_room_to_pack(bench: Bench) -> None:
    bench.layers.store.folder.write_text("in the way")
    with pytest.raises(MachineError, match=r"cannot be packed in .*work: .* Free space there"):
        bench.send(bench.image(BASE))


@dataclass(frozen=True)
class _Versioned:
    found: EngineVersion

    def version(self) -> EngineVersion:
        return self.found


@pytest.mark.parametrize("containerd", [False, True])
def test_only_from_a_graph_driver(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, containerd: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    sending = by_engine(None, Patience(1, 0), lambda _: None)
    engine = _Versioned(replace(VERSION, containerd_store=containerd))
    if containerd:
        with (
            pytest.raises(MachineError, match="keeps images in containerd"),
            packed(sending, engine, bench.registry),  # type: ignore[arg-type]
        ):
            raise AssertionError
        return
    with packed(sending, engine, bench.registry) as made:  # type: ignore[arg-type]
        assert made.layers
        folder = made.layers.store.folder
        assert folder.is_dir()
    assert not folder.exists()


def test_notes_are_small_json(bench: Bench) -> None:
    bench.send(bench.image(BASE))
    (note,) = bench.layers.notes.iterdir()
    assert note.name == f"{diff_id(BASE).removeprefix('sha256:')}.json"
    (digest,) = bench.sent()
    assert json.loads(note.read_text())["digest"] == digest


def test_the_engine_is_free_after_one_that_is_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that is not read to its end holds the engine's connection until it is closed."""
    image_id = bench.image(BASE)
    ended: list[str] = []

    def pieces() -> Generator[bytes, None, None]:
        try:
            yield from (b"x", b"y")
        finally:
            ended.append(threading.current_thread().name)

    def stop(_name: str, _text: str) -> None:
        raise StoppedError

    monkeypatch.setattr(bench.engine, "save", lambda _: pieces())
    kept: list[BaseException] = []  # a traceback keeps what its frames hold
    try:
        PackingSender(bench.engine, bench.layers, stop).send(
            "tf", image_id, "registry.test/app:1.0"
        )
    except StoppedError as error:
        kept.append(error)
    assert ended == [threading.current_thread().name]
