"""Published images without the security fixes of their system are listed, with what they lack."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from imgbuild.core.project import Project
from imgbuild.engine.types import ARM64
from imgbuild.maintain import outdated
from imgbuild.maintain.outdated import outdated_images
from imgbuild.matrix.images import Image, for_other_architecture
from imgbuild.scan.updates import Update, make_status
from support.memory_registry import MemoryRegistry
from support.published_images import publish

NAMES = ("tf-2.2-cpu-debian", "tf-2.3-cpu-debian", "tf-2.6-cpu-debian", "tf-2.1-cpu-debian")


def test_the_latest_release_of_each_image_is_compared_with_the_archive_once(
    images: dict[str, Image], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = MemoryRegistry()
    old, new = {"openssl": "1", "git": "1"}, {"openssl": "2", "git": "1"}
    for name, systems in ((NAMES[0], (new, old)), (NAMES[1], (old, new)), (NAMES[2], ({},))):
        for number, system in enumerate(systems, 1):
            facts = {"image": name, "release": f"20261120.{number}", "moving": ()}
            publish(registry, f"{name}-20261120.{number}", system=system, **facts)
    asked: list[tuple[str, bytes]] = []

    @contextmanager
    def open_context(_: Project, known: tuple[Image, ...], *__: object) -> Iterator[Any]:
        yield SimpleNamespace(images=known)

    def find_updates(_: str, system: str, status: bytes, __: object) -> tuple[Update, ...]:
        asked.append((system, status))
        return (
            Update("openssl", "0", "2", security=True),
            Update("git", "0", "2", security=False),
        )

    monkeypatch.setattr(outdated, "open_context", open_context)
    monkeypatch.setattr(outdated, "find_updates", find_updates)
    found = outdated_images(project, tuple(images[one] for one in NAMES), registry, print)
    assert found == {NAMES[0]: "published without security fixes of openssl"}
    assert asked == [("debian-12", make_status({"openssl": "0", "git": "0"}))]


def test_images_for_arm64_are_compared_by_source_versions(
    images: dict[str, Image], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive for amd64 is asked; either architecture may have rebuilt a package alone."""
    usual = images["tf-2.18-cpu-debian"]
    image = for_other_architecture(usual)
    assert image
    registry = MemoryRegistry()
    system = {"openssl": "1", "git": "1+b2"}
    publish(registry, "1-20261120.1", image=image.name, system=system, platform=ARM64, moving=())
    asked: list[tuple[Image, ...]] = []
    updates = [Update("git", "0", "1+b1", security=True)]

    @contextmanager
    def open_context(_: Project, known: tuple[Image, ...], *__: object) -> Iterator[Any]:
        asked.append(known)
        yield SimpleNamespace(images=known)

    monkeypatch.setattr(outdated, "open_context", open_context)
    monkeypatch.setattr(outdated, "find_updates", lambda *_: tuple(updates))
    assert outdated_images(project, (image,), registry, print) == {}
    updates.append(Update("openssl", "0", "2+b1", security=True))
    assert "openssl" in outdated_images(project, (image,), registry, print)[image.name]
    assert asked == [(usual,)] * 2
