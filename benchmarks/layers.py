"""What images weigh, layer by layer: bytes that several of them share are stored once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.engine import Engine

#: Instructions that make no layer; ``docker history`` lists them too.
METADATA = ("ENV ", "LABEL ", "CMD ", "ENTRYPOINT ", "ARG ", "EXPOSE ", "USER ", "STOPSIGNAL ")
#: docker history's words for bytes, by the API's numbers where it is asked with --human=false.
FORMAT = '{"size": {{json .Size}}, "by": {{json .CreatedBy}}}'


@dataclass(frozen=True)
class Layer:
    """A layer: its content's digest, its place (the digests below it too), and its bytes."""

    content: str
    place: str
    size: int


def layers_of(engine: Engine, image: str) -> list[Layer]:
    """Return an image's layers, the lowest first.

    Raises:
        RuntimeError: the engine's history does not fit the layers.

    """
    digests = json.loads(engine.ask("image", "inspect", "--format={{json .RootFS.Layers}}", image))
    asked = ("history", "--human=false", "--no-trunc", f"--format={FORMAT}", image)
    entries = [json.loads(line) for line in engine.ask(*asked).splitlines()]
    sizes = layer_sizes([(str(e["by"]), int(e["size"])) for e in reversed(entries)])
    if len(sizes) != len(digests):
        raise RuntimeError(f"{image}: {len(digests)} layers, but {len(sizes)} in its history")
    places = ["/".join(digests[: i + 1]) for i in range(len(digests))]
    return [Layer(*one) for one in zip(digests, places, sizes, strict=True)]


def layer_sizes(history: Sequence[tuple[str, int]]) -> list[int]:
    """Return the sizes of those entries of a history that made a layer."""
    return [
        size
        for by, size in history
        if size or not by.removeprefix("/bin/sh -c #(nop) ").lstrip().startswith(METADATA)
    ]


def unique_bytes(images: Sequence[Sequence[Layer]], *, by_content: bool) -> int:
    """Return the bytes of all different layers.

    ``by_content`` counts equal content once, as a registry and a containerd store do; otherwise
    once a place, as a graph driver does, where a layer is another one on other layers.
    """
    found = {(one.content if by_content else one.place): one.size for i in images for one in i}
    return sum(found.values())


def new_bytes(image: Sequence[Layer], before: Sequence[Layer]) -> int:
    """Return the bytes of the layers that were not there before, as a graph driver stores them."""
    known = {one.place for one in before}
    return sum(one.size for one in image if one.place not in known)


def family_bytes(engine: Engine, names: Sequence[str]) -> Mapping[str, float]:
    """Return the sum of the images' sizes, and the unique bytes counted in both ways."""
    found = [layers_of(engine, name) for name in names]
    return {
        "sum": float(sum(layer.size for image in found for layer in image)),
        "unique_stored": float(unique_bytes(found, by_content=False)),
        "unique_content": float(unique_bytes(found, by_content=True)),
    }
