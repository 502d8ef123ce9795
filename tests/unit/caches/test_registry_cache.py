"""A cache in a registry, by way of an engine: tags, small images, and no name left behind."""

from pathlib import Path

import pytest
from cached_images import add_image, wanted
from fake_engine import FakeEngine

from imgbuild.caches.protocol import CacheError, Kind
from imgbuild.caches.registry import RegistryCache
from imgbuild.caches.small_image import small_image, unpack
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, MachineError

REF = "r.example.org/ci/cache"
IMAGE = wanted()
TAG = f"{REF}:input-{'a' * 32}"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def cache(engine: FakeEngine, said: list[str]) -> RegistryCache:
    return RegistryCache(REF, engine, said.append)


def _second_machine(engine: FakeEngine) -> FakeEngine:
    other = FakeEngine(registry=engine.registry)
    other.contents = engine.contents
    return other


def test_an_image_is_pushed_and_its_tag_goes(cache: RegistryCache, engine: FakeEngine) -> None:
    image_id = add_image(engine, IMAGE, b"layer")
    engine.tag(image_id, "imgbuild/tensorflow:2.2")
    assert not cache.has_image(IMAGE)
    cache.save_image(IMAGE, image_id)
    assert [*engine.registry] == [TAG]
    assert engine.stored[image_id].tags == ("imgbuild/tensorflow:2.2",)
    assert cache.has_image(IMAGE)


def test_an_image_is_pulled_and_keeps_the_tag_until_it_has_a_name(
    cache: RegistryCache, engine: FakeEngine, said: list[str]
) -> None:
    cache.save_image(IMAGE, add_image(engine, IMAGE, b"layer"))
    other = _second_machine(engine)
    second = RegistryCache(REF, other, said.append)
    assert second.restore([wanted(inputs="c"), IMAGE]) == [IMAGE]
    (image,) = other.stored.values()
    assert image.tags == (TAG,)
    second.release(image.id)
    assert other.stored[image.id].tags == (TAG,)  # without a name it would be gone
    other.tag(image.id, "imgbuild/tensorflow:2.2")
    second.release(image.id)
    assert other.stored[image.id].tags == ("imgbuild/tensorflow:2.2",)
    second.release("sha256:gone")


def test_another_image_under_the_tag_is_not_believed(
    cache: RegistryCache, engine: FakeEngine, said: list[str]
) -> None:
    engine.registry[TAG] = StoredImage("sha256:evil", (TAG,), {"imgbuild.name": IMAGE.name})
    assert cache.restore([IMAGE]) == []
    assert not engine.stored
    assert "another image in place of" in said[0]


def test_an_image_that_cannot_be_pulled_is_as_good_as_none(
    cache: RegistryCache, engine: FakeEngine, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.save_image(IMAGE, add_image(engine, IMAGE, b"layer"))

    def pull(_: str) -> None:
        raise CheckFailedError("the blob is another one than its digest says")

    monkeypatch.setattr(engine, "pull", pull)
    assert cache.restore([IMAGE]) == []
    assert "cannot be read: the blob" in said[0]


def test_files_are_images_of_one_file(
    cache: RegistryCache, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "horovod-1.whl").write_bytes(b"wheel")
    cache.write(Kind.WHEEL, "0123", tmp_path / "horovod-1.whl")
    assert [*engine.registry] == [f"{REF}:wheel-0123"]
    assert engine.registry[f"{REF}:wheel-0123"].labels == {"imgbuild.cache": "wheel-0123"}
    assert not engine.stored
    other = RegistryCache(REF, _second_machine(engine), print)
    out = tmp_path / "out"
    out.mkdir()
    found = other.read(Kind.WHEEL, "0123", out)
    assert found == out / "horovod-1.whl"
    assert found.read_bytes() == b"wheel"
    assert not other.engine.images("imgbuild.cache")
    assert other.read(Kind.WHEEL, "4567", out) is None


def test_no_tag_stays_when_a_push_fails(
    cache: RegistryCache, engine: FakeEngine, tmp_path: Path
) -> None:
    image_id = add_image(engine, IMAGE, b"layer")
    engine.tag(image_id, "imgbuild/tensorflow:2.2")
    engine.offline = True
    with pytest.raises(MachineError):
        cache.save_image(IMAGE, image_id)
    (tmp_path / "x.whl").touch()
    with pytest.raises(MachineError):
        cache.write(Kind.WHEEL, "0123", tmp_path / "x.whl")
    assert engine.stored[image_id].tags == ("imgbuild/tensorflow:2.2",)
    assert [*engine.stored] == [image_id]


def test_the_same_file_is_the_same_image(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "f.json", tmp_path / "b" / "f.json"
    for path in (first, second):
        path.parent.mkdir()
        path.write_text("text")
    images = [b"".join(small_image(path, f"{REF}:report-1", {})) for path in (first, second)]
    assert images[0] == images[1]


@pytest.mark.parametrize("names", [(), ("a", "b"), ("../a",), ("folder/a",)])
def test_a_layer_of_anything_else_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    out.seek(0)
    with pytest.raises(CacheError):
        unpack(out, tmp_path)
