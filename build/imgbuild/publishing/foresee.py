"""What publishing would do: the same is done, to a registry that is only imagined."""

import json
from dataclasses import dataclass, replace

from imgbuild.publishing.approved import Approved
from imgbuild.publishing.publish import Publisher
from imgbuild.registry.manifest import DOCKER_MANIFEST
from imgbuild.registry.overlay import OverlayRegistry

_TO_DO = {"pushed": "push", "recorded": "record", "moved": "move"}


@dataclass(frozen=True)
class Foreseen:
    """What publishing an image would do: its immutable tag, and words such as ``move 2.2-gpu``.

    ``left`` are moving tags that a newer release keeps.
    """

    image: str
    tag: str
    to_do: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def foresee(publisher: Publisher, image: Approved) -> Foreseen:
    """Return what publishing an image would do; the registry is only read, nothing is started.

    Raises:
        CheckFailedError: it would fail: the immutable tag is another image's.
        MachineError: the registry cannot be reached, or keeps failing.

    """
    registry = OverlayRegistry(publisher.registry)

    def send(_name: str, image_id: str, reference: str) -> None:
        tag = reference.removeprefix(f"{registry.name}:")
        manifest = {"config": {"digest": image_id, "size": 0}, "layers": []}
        registry.put_manifest(tag, json.dumps(manifest).encode(), DOCKER_MANIFEST)

    imagined = replace(publisher, registry=registry, send=send, check=lambda _image, _release: None)
    found = imagined.publish(image)
    return Foreseen(image.name, found.record.tag, tuple(map(_to_do, found.done)), found.left)


def _to_do(done: str) -> str:
    first, space, rest = done.partition(" ")
    return f"{_TO_DO.get(first, first)}{space}{rest}"
