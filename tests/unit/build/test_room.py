"""A build that has no room is not begun."""

from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from fake_engine import VERSION

from imgbuild.build.room import GIB, require_room, room_for, scarce_room
from imgbuild.errors import MachineError
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem

if TYPE_CHECKING:
    from imgbuild.build.workshop import Workshop

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil has it


def _check(
    monkeypatch: pytest.MonkeyPatch,
    images: Sequence[Image],
    folder: str,
    free: int,
    action: Action,
) -> None:
    usage = Usage(0, 0, free)
    monkeypatch.setattr("imgbuild.build.room.shutil.disk_usage", lambda _: usage)
    version = SimpleNamespace(**{**VERSION.__dict__, "root_dir": folder})
    workshop = cast("Workshop", SimpleNamespace(engine=SimpleNamespace(version=lambda: version)))
    items = [PlanItem(image, InputDigest("d", {}), action, "") for image in images]
    require_room(items, workshop)


@pytest.mark.parametrize(("free", "action"), [(5 * GIB, Action.BUILD), (0, Action.NOTHING)])
def test_with_room_or_without_need_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
    images: dict[str, Any],
    tmp_path: Path,
    free: int,
    action: Action,
) -> None:
    _check(monkeypatch, [*images.values()][:1], str(tmp_path), free, action)


def test_without_room_nothing_is_begun(
    monkeypatch: pytest.MonkeyPatch, images: dict[str, Any], tmp_path: Path
) -> None:
    said = r"1\.0 GB are free .*at least 4\.3 GB must be to build 1 image\. .*nothing was"
    with pytest.raises(MachineError, match=said):
        _check(monkeypatch, [*images.values()][:1], str(tmp_path), 10**9, Action.BUILD)


def test_what_is_said_is_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, images: dict[str, Image], tmp_path: Path
) -> None:
    needed = room_for([*images.values()])
    _check(monkeypatch, [*images.values()], str(tmp_path), needed, Action.BUILD)
    said = rf"at least {needed / 1e9:.1f} GB must be to build {len(images)} images"
    with pytest.raises(MachineError, match=said):
        _check(monkeypatch, [*images.values()], str(tmp_path), needed - 1, Action.BUILD)


def test_what_images_share_is_counted_once(images: dict[str, Image]) -> None:
    debian = [image for image in images.values() if image.os_name == "debian-12"]
    gpu = next(image for image in images.values() if image.variant == "gpu")
    assert room_for([]) == 0
    assert room_for(debian[:1]) == 4 * GIB
    assert room_for(debian[:3]) == 5 * GIB
    assert room_for([debian[0], gpu]) == 6 * GIB
    assert room_for([*images.values()]) == 8 * GIB


def test_an_engine_elsewhere_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, images: dict[str, Any]
) -> None:
    _check(monkeypatch, [*images.values()][:1], "/nonexistent/docker", 0, Action.BUILD)


@pytest.mark.parametrize(("free", "said"), [(GIB, ""), (9 << 20, "disk is full: 9 MB are free")])
def test_a_full_disk_is_named_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, said: str
) -> None:
    monkeypatch.setattr("imgbuild.build.room.shutil.disk_usage", lambda _: Usage(0, 0, free))
    version = SimpleNamespace(root_dir=str(tmp_path))
    workshop = cast("Workshop", SimpleNamespace(engine=SimpleNamespace(version=lambda: version)))
    assert said in scarce_room(workshop)
    assert bool(scarce_room(workshop)) == bool(said)


def test_nothing_is_said_of_the_disk_of_an_engine_elsewhere() -> None:
    version = SimpleNamespace(root_dir="/no/such/folder")
    workshop = cast("Workshop", SimpleNamespace(engine=SimpleNamespace(version=lambda: version)))
    assert scarce_room(workshop) == ""
