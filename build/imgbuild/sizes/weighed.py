"""One image of a selection with its sizes, its budget, and what is printed of it for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from imgbuild.sizes.budget import exceeds
from imgbuild.sizes.family import family, sharing
from imgbuild.sizes.measure import MeasuredImage


@dataclass(frozen=True)
class Weighed:
    """An image by its name in the matrix, or by its reference; ``measured`` is None if not built.

    ``budget`` is in bytes.
    """

    name: str
    reference: str
    measured: MeasuredImage | None
    budget: int | None = None

    @property
    def exceeded(self) -> bool:
        """Whether the image is larger than its budget admits."""
        if self.measured is None or self.budget is None:
            return False
        return exceeds(self.measured.size, self.budget)


def built(weighed: Sequence[Weighed]) -> list[MeasuredImage]:
    """Return the images that are there."""
    return [one.measured for one in weighed if one.measured]


def as_json(weighed: Sequence[Weighed]) -> dict[str, Any]:
    """Return what ``size --json`` prints; every number is in bytes."""
    images = built(weighed)
    shared = sharing(images)
    return {
        "images": [_image(one, shared) for one in weighed],
        "family": asdict(family(images)),
    }


def _image(one: Weighed, shared: dict[str, int]) -> dict[str, Any]:
    named = {"name": one.name, "reference": one.reference, "budget": one.budget}
    image = one.measured
    if image is None:
        return {**named, "built": False}
    return {
        **named,
        "built": True,
        "id": image.image_id,
        "size": image.size,
        "exceeded": one.exceeded,
        "components": image.components,
        "waste": image.waste,
        "wasted": [wasted._asdict() for wasted in image.wasted],
        "layers": [
            {
                "diff_id": layer.diff_id,
                "size": image.layer_size(layer.diff_id),
                "waste": image.waste_of_layers[index],
                "images": shared[layer.diff_id],
                "components": image.components_of_layers[index],
                "made_by": layer.made_by,
            }
            for index, layer in enumerate(image.layers)
        ],
    }
