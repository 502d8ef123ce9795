"""Free disk space: too little begins no build, and a full disk is named after a failure."""

from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import fake_engine
import pytest
from fake_engine import FakeEngine

from imgbuild.build.prepare import GIB, full_disk, needed_bytes, require_disk_space
from imgbuild.errors import MachineError
from imgbuild.matrix.images import Image

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil has it


def _disk(monkeypatch: pytest.MonkeyPatch, folder: Path, free: int) -> None:
    monkeypatch.setattr("imgbuild.build.prepare.shutil.disk_usage", lambda _: Usage(0, 0, free))
    version = replace(fake_engine.VERSION, root_dir=str(folder))
    monkeypatch.setattr(fake_engine, "VERSION", version)


def test_the_build_begins_only_with_enough_space(
    monkeypatch: pytest.MonkeyPatch, images: dict[str, Image], tmp_path: Path
) -> None:
    chosen = [*images.values()]
    needed = needed_bytes(chosen)
    _disk(monkeypatch, tmp_path, needed)
    require_disk_space(chosen, FakeEngine())
    _disk(monkeypatch, tmp_path, needed - 1)
    message = rf"at least {needed / 1e9:.1f} GB must be to build {len(images)} images"
    with pytest.raises(MachineError, match=message):
        require_disk_space(chosen, FakeEngine())
    _disk(monkeypatch, tmp_path, 10**9)
    message = r"1\.0 GB are free .*at least 4\.3 GB must be to build 1 image\. .*nothing was"
    with pytest.raises(MachineError, match=message):
        require_disk_space(chosen[:1], FakeEngine())
    _disk(monkeypatch, tmp_path / "on another machine", 0)
    require_disk_space(chosen, FakeEngine())
    assert full_disk(FakeEngine()) == ""


def test_what_images_share_is_counted_once(images: dict[str, Image]) -> None:
    debian = [image for image in images.values() if image.os_name == "debian-12"]
    gpu = next(image for image in images.values() if image.variant == "gpu")
    assert needed_bytes() == needed_bytes(debian[:1]) == 4 * GIB
    assert needed_bytes(debian[:3]) == 5 * GIB
    assert needed_bytes([debian[0], gpu]) == 6 * GIB
    assert needed_bytes([*images.values()]) == 8 * GIB


@pytest.mark.parametrize(("free", "message"), [(GIB, ""), (9 << 20, "disk is full: 9 MB are free")])
def test_a_full_disk_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, message: str
) -> None:
    _disk(monkeypatch, tmp_path, free)
    assert message in full_disk(FakeEngine())
    assert bool(full_disk(FakeEngine())) == bool(message)
