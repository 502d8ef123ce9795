"""Before a build: enough space on the disk."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from imgbuild.build.prepare import GIB, needed_bytes
from imgbuild.core.errors import MachineError
from imgbuild.matrix.images import Image
from support.bench import OLD, Bench, engine_has


def test_low_disk_space_is_reported_before_and_after(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage, needed = "imgbuild.build.prepare.shutil.disk_usage", needed_bytes(bench.context.images)
    engine_has(monkeypatch, root_dir=str(tmp_path))
    monkeypatch.setattr(usage, Mock(return_value=Mock(free=needed - 1)))
    with pytest.raises(MachineError, match=rf"{needed / 1e9:.1f} GB .* 2 images"):
        bench.run()
    assert bench.baked == []
    monkeypatch.setattr(usage, Mock(side_effect=[Mock(free=needed), Mock(free=9 << 20)]))
    bench.broken = {OLD}
    assert "9 MB are free" in str(bench.run().failure())


def test_what_images_share_is_counted_once(images: dict[str, Image]) -> None:
    debian = [image for image in images.values() if image.os_name == "debian-12"]
    gpu = next(image for image in images.values() if image.variant == "gpu")
    assert needed_bytes() == needed_bytes(debian[:1]) == 4 * GIB
    assert needed_bytes(debian[:3]) == 5 * GIB
    assert needed_bytes([debian[0], gpu]) == 6 * GIB
    assert needed_bytes([*images.values()]) == 8 * GIB
