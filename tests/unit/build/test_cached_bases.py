"""Base images from caches and into them: a machine without state has the same one."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from imgbuild.build import cached_bases
from imgbuild.build.cached_bases import prepare_with_caches
from imgbuild.caches.folder import FolderCache
from imgbuild.caches.several import Caches
from imgbuild.inputs.base import find_base
from imgbuild.inputs.build_inputs import Preparation, base_recipe
from imgbuild.inputs.oci_layout import write_layout
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import Settings

_Prepare = Callable[..., list[str]]


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


@pytest.fixture
def prepare(
    tmp_path: Path, image: Image, project: Project, monkeypatch: pytest.MonkeyPatch
) -> _Prepare:
    """Return what prepares inputs on a machine, where ``content`` is what the archive has now."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(machine: str, content: str, *, refresh: bool = False, make: bool = True) -> list[str]:
        said: list[str] = []
        cache = tmp_path / machine
        folder = FolderCache(tmp_path / "kept", FakeEngine(), said.append)
        preparation = Preparation(cache, cache, project, said.append, make, refresh)

        def made(*_: object) -> None:
            if make and (refresh or not find_base(base_recipe(image), cache)):
                said.append("made")
                _make_base(image, cache, content)

        monkeypatch.setattr(cached_bases, "prepare_inputs", made)
        caches = Caches((folder,), (folder,), said.append)
        prepare_with_caches((image,), Settings(), preparation, caches)
        return said

    return run


def _make_base(image: Image, cache: Path, content: str) -> None:
    recipe = base_recipe(image)
    folder = cache / "base" / f"{recipe.os_name}-{recipe.digest[:12]}"
    if folder.exists():
        folder.rename(cache / f"old-{content}")
    folder.mkdir(parents=True)
    rootfs = cache / "rootfs.tar"
    with tarfile.open(rootfs, "w") as archive:
        info = tarfile.TarInfo("content")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content.encode()))
    write_layout(folder, rootfs, repository="imgbuild/base", tag="debian-12-{id}", epoch=0)


def _id(image: Image, cache: Path) -> str:
    found = find_base(base_recipe(image), cache)
    assert found
    return found.image_id


def test_a_second_machine_has_the_base_of_the_first(
    prepare: _Prepare, image: Image, tmp_path: Path
) -> None:
    assert prepare("first", "old") == ["made"]
    said = prepare("second", "new")
    assert said == ["The base image debian-12 is taken from a cache."]
    assert _id(image, tmp_path / "first") == _id(image, tmp_path / "second")


def test_refresh_base_takes_none_and_keeps_the_new_one(
    prepare: _Prepare, image: Image, tmp_path: Path
) -> None:
    prepare("first", "old")
    assert prepare("first", "new", refresh=True) == ["made"]
    prepare("second", "newer")
    assert _id(image, tmp_path / "first") == _id(image, tmp_path / "second")


def test_the_first_one_stays_otherwise(prepare: _Prepare, image: Image, tmp_path: Path) -> None:
    _make_base(image, tmp_path / "other", "other")
    prepare("first", "old")
    assert prepare("other", "other") == []
    prepare("second", "new")
    assert _id(image, tmp_path / "first") == _id(image, tmp_path / "second")


def test_a_damaged_one_is_made_here(prepare: _Prepare, tmp_path: Path) -> None:
    prepare("first", "old")
    (blob,) = (tmp_path / "kept").glob("blobs/sha256/*")
    blob.write_bytes(b"bad")
    said = prepare("second", "new")
    assert said[-1] == "made"
    assert "not whole" in said[0]
    assert prepare("third", "newer") == ["The base image debian-12 is taken from a cache."]


def test_an_archive_of_something_else_is_not_adopted(
    prepare: _Prepare, image: Image, tmp_path: Path
) -> None:
    from imgbuild.caches.protocol import Kind

    (tmp_path / "x.tar").write_bytes(b"no archive")
    folder = FolderCache(tmp_path / "kept", FakeEngine(), print)
    folder.write(Kind.BASE, base_recipe(image).digest[:32], tmp_path / "x.tar")
    assert prepare("second", "new") == ["made"]


def test_looking_makes_nothing_and_keeps_nothing(prepare: _Prepare, tmp_path: Path) -> None:
    assert prepare("first", "old", make=False) == []
    assert not (tmp_path / "kept").exists()
