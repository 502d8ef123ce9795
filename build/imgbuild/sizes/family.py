"""What images share: each layer counted once, in the two ways in which it is stored once. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from imgbuild.sizes.measure import MeasuredImage


@dataclass(frozen=True)
class Family:
    """The bytes of several images together.

    ``together`` counts every image whole. ``by_content`` counts each layer once, as a registry does
    and engines that keep images in containerd do for their packed layers. ``by_chain`` counts a
    layer once for all images that have the same layers below it too, as graph drivers (overlay2)
    do: there the same content over other layers is stored again.
    """

    images: int
    together: int
    by_content: int
    by_chain: int


def family(images: Sequence[MeasuredImage]) -> Family:
    """Return what images take together; an image that has several names counts once."""
    different = {image.image_id: image for image in images}.values()
    content: dict[str, int] = {}
    chains: dict[tuple[str, ...], int] = {}
    for image in different:
        below: tuple[str, ...] = ()
        for layer in image.layers:
            below = (*below, layer.diff_id)
            content[layer.diff_id] = chains[below] = image.layer_size(layer.diff_id)
    together = sum(image.size for image in different)
    return Family(len(different), together, sum(content.values()), sum(chains.values()))


def sharing(images: Sequence[MeasuredImage]) -> Counter[str]:
    """Return in how many of the images each layer is, by diff id."""
    different = {image.image_id: image for image in images}.values()
    return Counter(
        diff_id for image in different for diff_id in {layer.diff_id for layer in image.layers}
    )
