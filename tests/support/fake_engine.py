"""An engine in memory, for unit tests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.engine.client import Engine
from imgbuild.engine.types import (
    EngineVersion,
    LabelledObject,
    Layer,
    StoredImage,
)

VERSION = EngineVersion("28.0.0", "overlay2", False, "/var/lib/docker", "x86_64")


@dataclass
class FakeContainer:
    """What a test can ask about a container."""

    image: str
    command: tuple[str, ...]
    labels: Mapping[str, str]
    options: Mapping[str, object]
    copied: list[tuple[str, bytes]] = field(default_factory=list)


class FakeEngine(Engine):
    """An `Engine` without a daemon; ``registry`` is what ``pull`` finds, ``calls`` what came."""

    def __init__(
        self, images: Sequence[StoredImage] = (), registry: Mapping[str, StoredImage] | None = None
    ) -> None:
        super().__init__(None)
        self.stored = {image.id: image for image in images}
        self.registry = dict(registry or {})
        self.running: dict[str, FakeContainer] = {}
        self.nets: dict[str, LabelledObject] = {}
        self.histories: dict[str, list[Layer]] = {}
        #: What containers run with, by image id.
        self.configurations: dict[str, Mapping[str, Any]] = {}
        #: Files of images, by id and path.
        self.files: dict[tuple[str, str], bytes] = {}
        self.calls: list[str] = []
        self.closed = False

    def version(self) -> EngineVersion:
        self.calls.append("version")
        return VERSION

    def images(self, label: str) -> list[StoredImage]:
        self.calls.append("images")
        return [image for image in self.stored.values() if carries(image.labels, label)]

    def inspect(self, reference: str) -> StoredImage | None:
        self.calls.append("inspect")
        return self._find(reference)

    def history(self, image_id: str) -> list[Layer]:
        self.calls.append("history")
        return self.histories.get(image_id) or [Layer(None, self._need(image_id).size, "")]

    def configuration(self, image_id: str) -> Mapping[str, Any]:
        return self.configurations.get(self._need(image_id).id, {})

    def tag(self, image_id: str, reference: str) -> None:
        self.calls.append("tag")
        image = self._need(image_id)
        self._drop(reference)
        image = self.stored[image.id]
        self.stored[image.id] = replace(image, tags=(*image.tags, _full(reference)))

    def untag(self, reference: str) -> None:
        self.calls.append("untag")
        if reference.startswith("sha256:"):
            raise InputError(f"{reference!r} is an image id. Give a name instead.")
        image = self._drop(reference)
        if image and not image.tags:
            del self.stored[image.id]

    def discard(self, image_id: str) -> bool:
        image = self._find(image_id)
        if image is None:
            return True
        if image.tags or self.in_use(image.id):
            return False
        del self.stored[image.id]
        return True

    def load(self, archive: BinaryIO) -> tuple[str, ...]:  # noqa: ARG002
        self.calls.append("load")
        return ()

    def _pull(self, reference: str, platform: str | None) -> None:
        self.calls.append("pull")
        assert platform is None or platform.startswith("linux/")
        if reference not in self.registry:
            raise CheckFailedError(f"The registry has no {reference}.")
        self._store(self.registry[reference])

    def push(
        self, reference: str, on_message: Callable[[Mapping[str, object]], None] = lambda _: None
    ) -> None:
        self.calls.append("push")
        on_message({"status": "Pushing", "id": "one", "progressDetail": {"current": 1, "total": 2}})
        pushed = self._need(reference)
        self.registry[reference] = replace(pushed, tags=(reference,))
        on_message({"status": f"{reference}: digest: {pushed.id} size: 855"})

    def start(
        self,
        image: str,
        *,
        command: Sequence[str],
        labels: Mapping[str, str],
        **options: object,
    ) -> str:
        self.calls.append("start")
        found = self._need(image)
        container = f"container-{len(self.calls)}"
        self.running[container] = FakeContainer(found.id, tuple(command), dict(labels), options)
        return container

    def remove_container(self, container: str) -> None:
        self.running.pop(container, None)

    def containers(self, label: str) -> list[LabelledObject]:
        return [
            LabelledObject(name, one.labels, 0)
            for name, one in self.running.items()
            if carries(one.labels, label)
        ]

    def networks(self, label: str) -> list[LabelledObject]:
        return [one for one in self.nets.values() if carries(one.labels, label)]

    def remove_network(self, network: str) -> None:
        self.nets.pop(network, None)

    def copy_in(self, container: str, archive: bytes, path: str) -> None:
        if container not in self.running:
            raise CheckFailedError(f"There is no container {container}.")
        self.running[container].copied.append((path, archive))

    def copy_out(
        self,
        image_id: str,
        path: str,
        *,
        labels: Mapping[str, str],  # noqa: ARG002
        limit: int,  # noqa: ARG002
    ) -> bytes | None:
        return self.files.get((self._need(image_id).id, path))

    def find_named(self, repository: str) -> list[StoredImage]:
        return [
            image
            for image in self.stored.values()
            if any(tag.rpartition(":")[0] == repository for tag in image.tags)
        ]

    def in_use(self, image_id: str) -> bool:
        return any(one.image == image_id for one in self.running.values())

    def build_cache(self) -> list[int]:
        return []

    def close(self) -> None:
        self.closed = True

    def _store(self, image: StoredImage) -> None:
        before = self.stored[image.id].tags if image.id in self.stored else ()
        for tag in image.tags:
            self._drop(tag)
        self.stored[image.id] = replace(image, tags=tuple(dict.fromkeys((*before, *image.tags))))

    def _find(self, reference: str) -> StoredImage | None:
        every = self.stored.values()
        found = (one for one in every if reference == one.id or _full(reference) in one.tags)
        return next(found, None)

    def _need(self, reference: str) -> StoredImage:
        image = self._find(reference)
        if image is None:
            raise CheckFailedError(f"There is no image {reference}.")
        return image

    def _drop(self, reference: str) -> StoredImage | None:
        if image := self._find(reference):
            left = tuple(tag for tag in image.tags if tag != _full(reference))
            image = self.stored[image.id] = replace(image, tags=left)
        return image


class OfferingEngine(FakeEngine):
    """An engine that has GPUs, and gives them."""

    def version(self) -> EngineVersion:
        return replace(super().version(), gpus="nvidia")


class EngineOn(FakeEngine):
    """One on a machine with another processor, by the name that engines give it."""

    def __init__(self, architecture: str, images: Sequence[StoredImage] = ()) -> None:
        super().__init__(images)
        self._architecture = architecture

    def version(self) -> EngineVersion:
        return replace(super().version(), architecture=self._architecture)


def _full(reference: str) -> str:
    """Return a name with its tag, as the engine writes it."""
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"


def carries(labels: Mapping[str, str], label: str) -> bool:
    """Return whether labels hold `label` (``key`` or ``key=value``)."""
    key, given, value = label.partition("=")
    return key in labels and (not given or labels[key] == value)
