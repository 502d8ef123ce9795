"""The Horovod wheels of one bake: those that are there go in, those that it makes are kept."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.build.wheel_key import STAGE, wheel_key
from imgbuild.build.wheel_store import WheelStore
from imgbuild.build.workshop import Workshop
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.engine.bake import BakeTarget
from imgbuild.files import work_folder
from imgbuild.plan.plan import PlanItem


@dataclass(frozen=True)
class Wheels:
    """Keys and kept folders by image; ``exports`` is where a bake writes the missing ones."""

    keys: Mapping[str, str]
    kept: Mapping[str, Path]
    exports: Path

    def context(self, image: str) -> Mapping[str, Path]:
        """Return the named context that replaces the image's stage, if its wheel is there."""
        return {STAGE: self.kept[image]} if image in self.kept else {}

    def is_missing(self, image: str) -> bool:
        """Return whether the image's bake has to compile, and is the one that exports the wheel."""
        key = self.keys.get(image)
        first = next((name for name, known in self.keys.items() if known == key), None)
        return image not in self.kept and image == first

    def export(self, target: BakeTarget) -> BakeTarget:
        """Return the target that writes the wheel of ``target`` into a folder."""
        folder = self.exports / target.name
        return replace(
            target,
            name=f"{target.name}-{STAGE}",
            target=STAGE,
            labels={},
            output=f"type=local,dest={folder}",
        )


@contextmanager
def open_wheels(items: Sequence[PlanItem], workshop: Workshop) -> Iterator[Wheels]:
    """Give the wheels of ``items``; what the block exports is kept, also if it fails later.

    Raises:
        MachineError: the cache cannot be written.

    """
    store = wheel_store(workshop)
    keys = {item.image.name: wheel_key_of(item, workshop) for item in items if _has(item, workshop)}
    found = {name: store.find(key) for name, key in keys.items()}
    with work_folder("wheels") as exports:
        wheels = Wheels(keys, {n: place for n, place in found.items() if place}, exports)
        try:
            yield wheels
        finally:
            for name, key in keys.items():
                if wheels.is_missing(name):
                    store.adopt(key, exports / name)


def wheel_store(workshop: Workshop) -> WheelStore:
    """Return where this user's wheels are."""
    return WheelStore(workshop.cache / "wheels")


def wheel_key_of(item: PlanItem, workshop: Workshop) -> str:
    """Return the key of the wheel that an image is built with.

    Raises:
        InputError: the image's lock is missing or damaged.

    """
    return wheel_key(item.image, _dockerfile(item, workshop), workshop.inputs, workshop.project)


def _has(item: PlanItem, workshop: Workshop) -> bool:
    """Return whether the image's Dockerfile compiles a wheel: templates of others need not."""
    return STAGE in _dockerfile(item, workshop).stages


def _dockerfile(item: PlanItem, workshop: Workshop) -> Dockerfile:
    return render_dockerfile(item.image, workshop.project.templates)
