"""Measure images: size and build step of each layer, shared layers, budgets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from imgbuild.build.gate import budget_problem, image_size
from imgbuild.engine.client import Engine
from imgbuild.engine.types import Layer

#: Instructions that always create a layer, even an empty one.
_MAKE_LAYERS = ("RUN", "COPY", "ADD", "WORKDIR")


@dataclass(frozen=True)
class ImageSize:
    """The size of one image, by its name in the matrix or its reference.

    ``layers`` begin with the lowest. ``image_id`` is None if the engine does not have the image.
    ``budget`` is in bytes.
    """

    name: str
    reference: str
    image_id: str | None = None
    layers: tuple[Layer, ...] = ()
    budget: int | None = None
    excess: str | None = None

    @property
    def size(self) -> int:
        return sum(layer.size for layer in self.layers)

    def as_json(self, shared: Counter[str]) -> dict[str, Any]:
        """Return the image's entry in the output of ``show --layers --json``."""
        named = {"name": self.name, "reference": self.reference, "budget": self.budget}
        if self.image_id is None:
            return {**named, "built": False}
        layers = [{**layer._asdict(), "images": shared[layer.key]} for layer in self.layers]
        facts = {"id": self.image_id, "size": self.size, "exceeded": self.excess is not None}
        return {**named, "built": True, **facts, "layers": layers}


def measure(name: str, reference: str, engine: Engine, budget: int | None = None) -> ImageSize:
    """Measure an image in the engine; the result has no id if the engine does not have it."""
    stored = engine.inspect(reference)
    if stored is None:
        return ImageSize(name, reference, budget=budget)
    history = engine.history(stored.id)
    excess = budget_problem(image_size(history), budget, engine)
    layers = image_layers(history, stored.layers)
    return ImageSize(name, reference, stored.id, layers, budget, excess)


def image_layers(history: Sequence[Layer], diff_ids: Sequence[str]) -> tuple[Layer, ...]:
    """Return the layers of an image, lowest first, from its history, which has the newest first.

    The engine does not say which steps created no layer. If the numbers of layers and diff ids
    differ, the layers get no ``diff_id``.
    """
    layers = tuple(
        step for step in reversed(history) if step.size or step.made_by.startswith(_MAKE_LAYERS)
    )
    if len(layers) != len(diff_ids):
        return layers
    pairs = zip(layers, diff_ids, strict=True)
    return tuple(layer._replace(diff_id=diff_id) for layer, diff_id in pairs)


def count_sharing(images: Sequence[ImageSize]) -> Counter[str]:
    """Count the images that contain each layer, by layer key."""
    counts = Counter[str]()
    for image in _different(images):
        counts.update({layer.key for layer in image.layers})
    return counts


def combined_size(images: Sequence[ImageSize]) -> dict[str, int]:
    """Return the number of images and their size in bytes; several names of an image count once.

    - ``together``: the sum of all image sizes
    - ``by_content``: each layer counts once, as in a registry
    - ``by_chain``: a layer counts once per chain of lower layers, as in graph drivers (overlay2)
    """
    different = _different(images)
    content: dict[str, int] = {}
    chains: dict[tuple[str, ...], int] = {}
    for image in different:
        below: tuple[str, ...] = ()
        for layer in image.layers:
            below = (*below, layer.key)
            content[layer.key] = chains[below] = layer.size
    return {
        "images": len(different),
        "together": sum(image.size for image in different),
        "by_content": sum(content.values()),
        "by_chain": sum(chains.values()),
    }


def as_json(images: Sequence[ImageSize]) -> dict[str, Any]:
    """Return the output of ``show --layers --json``; all sizes are in bytes."""
    shared = count_sharing(images)
    listed = [image.as_json(shared) for image in images]
    return {"images": listed, "family": combined_size(images)}


def _different(images: Sequence[ImageSize]) -> list[ImageSize]:
    return list({image.image_id: image for image in images if image.image_id}.values())
