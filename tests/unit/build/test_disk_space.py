"""Free disk space: too little begins no build, and a full disk is named after a failure."""

from collections import namedtuple
from pathlib import Path

import pytest
from bench import engine_has
from fake_engine import FakeEngine

from imgbuild.build.prepare import GIB, full_disk, needed_bytes, require_disk_space
from imgbuild.errors import MachineError
from imgbuild.matrix.images import Image

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil has it


def _disk(monkeypatch: pytest.MonkeyPatch, folder: Path, free: int) -> None:
    monkeypatch.setattr("imgbuild.build.prepare.shutil.disk_usage", lambda _: Usage(0, 0, free))
    engine_has(monkeypatch, root_dir=str(folder))


def test_a_build_begins_only_with_enough_space_and_a_full_disk_is_named(
    monkeypatch: pytest.MonkeyPatch, images: dict[str, Image], tmp_path: Path
) -> None:
    chosen, engine = [*images.values()], FakeEngine()
    needed = needed_bytes(chosen)
    _disk(monkeypatch, tmp_path, needed)
    require_disk_space(chosen, engine)
    assert full_disk(engine) == ""
    _disk(monkeypatch, tmp_path, needed - 1)
    with pytest.raises(MachineError, match=rf"{needed / 1e9:.1f} GB .* {len(images)} images"):
        require_disk_space(chosen, engine)
    _disk(monkeypatch, tmp_path, 9 << 20)
    assert "9 MB are free" in full_disk(engine)
    _disk(monkeypatch, tmp_path / "on another machine", 0)
    require_disk_space(chosen, engine)
    assert full_disk(engine) == ""


def test_what_images_share_is_counted_once(images: dict[str, Image]) -> None:
    debian = [image for image in images.values() if image.os_name == "debian-12"]
    gpu = next(image for image in images.values() if image.variant == "gpu")
    assert needed_bytes() == needed_bytes(debian[:1]) == 4 * GIB
    assert needed_bytes(debian[:3]) == 5 * GIB
    assert needed_bytes([debian[0], gpu]) == 6 * GIB
    assert needed_bytes([*images.values()]) == 8 * GIB
