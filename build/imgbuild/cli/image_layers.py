"""``imgbuild show --layers``: show the layers of images, shared sizes and budgets."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from imgbuild.cli.options import engine_images, print_result, pull_missing
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.build.sizes import ImageSize

_ARGUMENTS = re.compile(r"^(RUN )?(\|\d+ (\S+=\S* )*)?(/bin/(ba)?sh -e?c )?")


def print_layers(checkout: Project, selection: Selection, *, as_json: bool) -> None:
    """Print the layers of images in the engine, with the step that made each layer.

    InputError: the engine has none of the images, or lacks an image that was named by its
        reference.
    CheckFailedError: an image exceeds its budget.
    """
    from imgbuild.build import sizes
    from imgbuild.engine.client import open_engine

    settings = checkout.settings
    images = engine_images(checkout, selection)
    with open_engine(settings.engine) as engine:
        measured = []
        for reference, planned in images:
            if planned is None:
                pull_missing(engine, reference, settings)
            # Budgets do not apply to images that were built from stand-ins.
            budget = planned.budget if planned and not settings.standin else None
            name = planned.name if planned else reference
            measured.append(sizes.measure(name, reference, engine, budget))
    if not any(size.image_id for size in measured):
        missing = ", ".join(size.name for size in measured)
        raise InputError(
            f"The engine has none of the selected images: {missing}. Build or pull one first. "
            "`docker images` lists the images of the engine."
        )
    print_result(sizes.as_json(measured), _lines(measured), as_json=as_json)
    excess = [f"{size.name}: {size.excess}" for size in measured if size.excess]
    if excess:
        raise CheckFailedError("\n".join(excess))


def _lines(images: "Sequence[ImageSize]") -> Iterator[str]:
    """Yield the table of images, the table of non-empty layers, and the shared sizes."""
    from imgbuild.build.sizes import combined_size, count_sharing

    yield from align_rows([("image", "MB", "budget", "layers"), *map(_image_row, images)])
    yield ""
    shared = count_sharing(images)
    rows: dict[str, tuple[str, ...]] = {"": ("layer", "MB", "images", "made by")}
    for image in images:
        for layer in image.layers:
            if not layer.size:
                continue
            short = (layer.diff_id or "-").removeprefix("sha256:")[:12]
            count = str(shared[layer.key])
            rows[layer.key] = (short, _megabytes(layer.size), count, instruction(layer.made_by))
    yield from align_rows([*rows.values()])
    combined = combined_size(images)
    total = combined["together"]
    if combined["images"] < 2:
        return
    yield f"\n{combined['images']} images, {_megabytes(total)} MB together."
    for way, text in (
        ("by_content", "each layer once, as a registry stores them"),
        ("by_chain", "each layer once over the same layers, as a graph driver stores them"),
    ):
        size = combined[way]
        yield f"{_megabytes(size)} MB ({size * 100 / max(total, 1):.0f} %): {text}."


def _image_row(image: "ImageSize") -> tuple[str, ...]:
    exceeded = " EXCEEDED" if image.excess else ""
    budget = "-" if image.budget is None else f"{image.budget / 1e6:.0f}{exceeded}"
    if image.image_id is None:
        return image.name, "not built", budget, "-"
    return image.name, _megabytes(image.size), budget, str(len(image.layers))


def _megabytes(size: int) -> str:
    """Return a size in MB (10⁶ bytes) with one decimal; show small sizes as ``<0.1``, not 0.0."""
    return "<0.1" if 0 < size < 50_000 else f"{size / 1e6:.1f}"


def instruction(made_by: str, width: int = 60) -> str:
    """Return the instruction that made a layer, without the parts that builders add."""
    text = " ".join(made_by.removesuffix("# buildkit").split())
    match = _ARGUMENTS.match(text)
    short = f"RUN {text[match.end() :]}" if match and match[0] else text
    return (short if len(short) <= width else f"{short[: width - 3].rstrip()}...") or "-"
