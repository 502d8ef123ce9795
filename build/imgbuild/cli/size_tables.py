"""What ``imgbuild size`` prints. 1 MB is 1 000 000 bytes, as engines show it."""

import re
from collections.abc import Iterator, Sequence

from imgbuild.sizes.components import NAMES
from imgbuild.sizes.family import family, sharing
from imgbuild.sizes.measure import MeasuredImage
from imgbuild.sizes.weighed import Weighed, built
from imgbuild.text import aligned

#: Wasted files that are shown of an image; ``--json`` has all.
SHOWN = 20
_ARGUMENTS = re.compile(r"^(RUN )?(\|\d+ (\S+=\S* )*)?(/bin/(ba)?sh -e?c )?")


def size_lines(weighed: Sequence[Weighed], *, waste: bool) -> str:
    """Return the tables: images and their components, layers, the family, wasted files."""
    images = built(weighed)
    lines = [*aligned(_images(weighed)), "", *aligned(_layers(images))]
    if len(images) > 1:
        lines += ["", *_family(images)]
    for one in weighed if waste else ():
        lines += _wasted(one)
    return "\n".join(lines)


def megabytes(size: int) -> str:
    """Return a size in MB with one digit; what rounds to nothing is not nothing."""
    if size < 50_000:
        return "<0.1" if size else "0"
    return f"{size / 1e6:.1f}"


def _images(weighed: Sequence[Weighed]) -> list[tuple[str, ...]]:
    used = [name for name in NAMES if any(name in image.components for image in built(weighed))]
    rows = [("image", "MB", "budget", "waste", *used)]
    for one in weighed:
        image = one.measured
        if image is None:
            rows.append((one.name, "not built", _budget(one), *("-" for _ in ("waste", *used))))
            continue
        parts = (megabytes(image.components.get(name, 0)) for name in used)
        rows.append((one.name, megabytes(image.size), _budget(one), megabytes(image.waste), *parts))
    return rows


def _budget(one: Weighed) -> str:
    if one.budget is None:
        return "-"
    return f"{one.budget / 1e6:.0f}{' EXCEEDED' if one.exceeded else ''}"


def _layers(images: Sequence[MeasuredImage]) -> list[tuple[str, ...]]:
    """Return one row a layer with bytes, in the order in which the images have them."""
    shared = sharing(images)
    rows: list[tuple[str, ...]] = [("layer", "MB", "images", "waste", "mostly", "made by")]
    seen: set[str] = set()
    for image in images:
        for index, layer in enumerate(image.layers):
            size = image.layer_size(layer.diff_id)
            if not size or layer.diff_id in seen:
                continue
            seen.add(layer.diff_id)
            rows.append(
                (
                    layer.diff_id.removeprefix("sha256:")[:12],
                    megabytes(size),
                    str(shared[layer.diff_id]),
                    megabytes(image.waste_of_layers[index]),
                    _mostly(image.components_of_layers[index]),
                    instruction(layer.made_by),
                )
            )
    return rows


def _mostly(components: dict[str, int]) -> str:
    if not components:
        return "-"
    name = max(components, key=lambda one: components[one])
    return f"{name} {megabytes(components[name])}"


def instruction(made_by: str, width: int = 48) -> str:
    """Return the instruction that made a layer, without what builders put around it."""
    text = " ".join(made_by.removesuffix("# buildkit").split())
    found = _ARGUMENTS.match(text)
    short = f"RUN {text[found.end() :]}" if found and found[0] else text
    if not short:
        return "-"
    return short if len(short) <= width else f"{short[: width - 3].rstrip()}..."


def _family(images: Sequence[MeasuredImage]) -> Iterator[str]:
    found = family(images)
    yield f"{found.images} images, {megabytes(found.together)} MB together."
    for what, size in (
        ("each layer once, as a registry stores them", found.by_content),
        ("each layer once over the same layers, as a graph driver stores them", found.by_chain),
    ):
        yield f"{megabytes(size)} MB ({size * 100 / max(found.together, 1):.0f} %): {what}."


def _wasted(one: Weighed) -> Iterator[str]:
    if one.measured is None:
        return
    image = one.measured
    wasted = sorted(image.wasted, key=lambda file: (-file.size, file.path))
    yield ""
    yield f"{one.name}: {megabytes(image.waste)} MB wasted in {len(wasted)} files."
    rows = [("MB", "written in", "then", "in", "path")]
    for file in wasted[:SHOWN]:
        then = "removed" if file.removed else "overwritten"
        written, gone = (_short(image, index) for index in (file.written, file.gone))
        rows.append((megabytes(file.size), written, then, gone, f"/{file.path}"))
    yield from aligned(rows) if wasted else ()
    if len(wasted) > SHOWN:
        yield f"{len(wasted) - SHOWN} smaller ones: --json has all."


def _short(image: MeasuredImage, index: int) -> str:
    return image.layers[index].diff_id.removeprefix("sha256:")[:12]
