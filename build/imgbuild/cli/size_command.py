"""``imgbuild size``: the layers of images, what they share, and their budgets."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from imgbuild.cli.options import JSON, PROJECT, engine_images, option, print_result, takes_selection
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.selection import Selection
from imgbuild.project import Project
from imgbuild.text import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.sizes import ImageSize

_ARGUMENTS = re.compile(r"^(RUN )?(\|\d+ (\S+=\S* )*)?(/bin/(ba)?sh -e?c )?")


@takes_selection()
def size(
    selection: Selection,
    image: list[str] | None = option(
        "--image IMAGE", "An image of the engine, by name or id; repeatable."
    ),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """Show the layers of images; exit 1 if one exceeds its budget.

    By default, of all images of the matrix that are built, with the step that made each layer.
    """
    from imgbuild import sizes
    from imgbuild.engine.client import open_engine

    settings = checkout.settings
    images = engine_images(checkout, selection if image else selection.or_everything, image or ())
    with open_engine(settings.engine) as engine:
        found = []
        for reference, one in images:
            # What is built from stand-ins has no budget.
            budget = one.budget if one and not settings.standin else None
            found.append(sizes.measure(one.name if one else reference, reference, engine, budget))
    missing = ", ".join(one.name for one in found if one.image_id is None)
    if missing and (image or not any(one.image_id for one in found)):
        what = f"no image {missing}" if image else f"none of the selected images: {missing}"
        raise InputError(
            f"The engine has {what}. Build or pull it first; `docker images` lists the engine's."
        )
    print_result(sizes.as_json(found), _lines(found), as_json=as_json)
    excess = [f"{one.name}: {one.excess}" for one in found if one.excess]
    if excess:
        raise CheckFailedError("\n".join(excess))


def _lines(found: "Sequence[ImageSize]") -> Iterator[str]:
    """Yield the tables: images, layers with bytes in their order, what several images share."""
    from imgbuild.sizes import sharing, together

    yield from aligned([("image", "MB", "budget", "layers"), *map(_image_row, found)])
    yield ""
    shared = sharing(found)
    rows: dict[str, tuple[str, ...]] = {"": ("layer", "MB", "images", "made by")}
    for layer in (layer for one in found for layer in one.layers if layer.size):
        short = (layer.diff_id or "-").removeprefix("sha256:")[:12]
        images = str(shared[layer.key])
        rows[layer.key] = (short, _megabytes(layer.size), images, instruction(layer.made_by))
    yield from aligned([*rows.values()])
    total = together(found)
    if total.images < 2:
        return
    yield f"\n{total.images} images, {_megabytes(total.together)} MB together."
    for what, size in (
        ("each layer once, as a registry stores them", total.by_content),
        ("each layer once over the same layers, as a graph driver stores them", total.by_chain),
    ):
        yield f"{_megabytes(size)} MB ({size * 100 / max(total.together, 1):.0f} %): {what}."


def _image_row(one: "ImageSize") -> tuple[str, ...]:
    exceeded = " EXCEEDED" if one.excess else ""
    budget = "-" if one.budget is None else f"{one.budget / 1e6:.0f}{exceeded}"
    if one.image_id is None:
        return one.name, "not built", budget, "-"
    return one.name, _megabytes(one.size), budget, str(len(one.layers))


def _megabytes(size: int) -> str:
    """Return a size in MB (10⁶ bytes) with one digit; what rounds to nothing is not nothing."""
    return "<0.1" if 0 < size < 50_000 else f"{size / 1e6:.1f}"


def instruction(made_by: str, width: int = 60) -> str:
    """Return the instruction that made a layer, without what builders put around it."""
    text = " ".join(made_by.removesuffix("# buildkit").split())
    found = _ARGUMENTS.match(text)
    short = f"RUN {text[found.end() :]}" if found and found[0] else text
    return (short if len(short) <= width else f"{short[: width - 3].rstrip()}...") or "-"
