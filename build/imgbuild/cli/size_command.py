"""``imgbuild size``: the layers of images, what they share, and their budgets."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import option, print_json, select, takes_selection
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.selection import Selection
from imgbuild.text import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.sizes import ImageSize

_ARGUMENTS = re.compile(r"^(RUN )?(\|\d+ (\S+=\S* )*)?(/bin/(ba)?sh -e?c )?")


@takes_selection()
def size(
    selection: Selection,
    image: Annotated[
        list[str] | None,
        option("--image REF", "An image of the engine, by name or id; repeatable."),
    ] = None,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Show the layers of images and the step that made each; exit 1 if one exceeds its budget.

    By default of every image of the matrix that is built.
    """
    from imgbuild import sizes
    from imgbuild.engine.client import Engine
    from imgbuild.engine.discovery import resolve_host
    from imgbuild.matrix.images import standin_image
    from imgbuild.settings import load_settings

    if image and selection != Selection():
        raise InputError("--image cannot be combined with the selection options.")
    opened = options.open_project(project)
    settings = load_settings(opened.settings)
    images = () if image else select(opened, selection.or_everything)
    if settings.standin:
        images = tuple(map(standin_image, images))
    # What is built from stand-ins has no budget.
    named = [(one.name, one.tags[0], None if settings.standin else one.budget) for one in images]
    named += [(reference, reference, None) for reference in image or ()]
    with closing(Engine(resolve_host(settings.engine))) as engine:
        found = [sizes.measure(name, tag, engine, budget) for name, tag, budget in named]
    missing = ", ".join(one.name for one in found if one.image_id is None)
    if image and missing:
        raise InputError(
            f"The engine has no image {missing}. Build or pull it first; `docker images` lists the "
            "engine's."
        )
    if not any(one.image_id for one in found):
        raise InputError(
            f"The engine has none of the selected images: {missing}. Build them first."
        )
    if as_json:
        print_json(sizes.as_json(found))
    else:
        typer.echo(size_lines(found))
    excess = [f"{one.name}: {one.excess}" for one in found if one.excess]
    if excess:
        raise CheckFailedError("\n".join(excess))


def size_lines(found: "Sequence[ImageSize]") -> str:
    """Return the tables: images, layers, and what several images share."""
    lines = [*aligned(_images(found)), "", *aligned(_layers(found))]
    if sum(one.image_id is not None for one in found) > 1:
        lines += ["", *_together(found)]
    return "\n".join(lines)


def megabytes(size: int) -> str:
    """Return a size in MB (10⁶ bytes) with one digit; what rounds to nothing is not nothing."""
    if size < 50_000:
        return "<0.1" if size else "0"
    return f"{size / 1e6:.1f}"


def _images(found: "Sequence[ImageSize]") -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("image", "MB", "budget", "layers")]
    for one in found:
        exceeded = " EXCEEDED" if one.excess else ""
        budget = "-" if one.budget is None else f"{one.budget / 1e6:.0f}{exceeded}"
        if one.image_id is None:
            rows.append((one.name, "not built", budget, "-"))
        else:
            rows.append((one.name, megabytes(one.size), budget, str(len(one.layers))))
    return rows


def _layers(found: "Sequence[ImageSize]") -> list[tuple[str, ...]]:
    """Return one row a layer with bytes, in the order in which the images have them."""
    from imgbuild.sizes import sharing

    shared = sharing(found)
    rows: dict[str, tuple[str, ...]] = {"": ("layer", "MB", "images", "made by")}
    for layer in (layer for one in found for layer in one.layers if layer.size):
        short = (layer.diff_id or "-").removeprefix("sha256:")[:12]
        made_by = instruction(layer.made_by)
        images = str(shared[layer.key])
        rows.setdefault(layer.key, (short, megabytes(layer.size), images, made_by))
    return list(rows.values())


def instruction(made_by: str, width: int = 60) -> str:
    """Return the instruction that made a layer, without what builders put around it."""
    text = " ".join(made_by.removesuffix("# buildkit").split())
    found = _ARGUMENTS.match(text)
    short = f"RUN {text[found.end() :]}" if found and found[0] else text
    if not short:
        return "-"
    return short if len(short) <= width else f"{short[: width - 3].rstrip()}..."


def _together(found: "Sequence[ImageSize]") -> Iterator[str]:
    from imgbuild.sizes import together

    total = together(found)
    yield f"{total.images} images, {megabytes(total.together)} MB together."
    for what, size in (
        ("each layer once, as a registry stores them", total.by_content),
        ("each layer once over the same layers, as a graph driver stores them", total.by_chain),
    ):
        yield f"{megabytes(size)} MB ({size * 100 / max(total.together, 1):.0f} %): {what}."
