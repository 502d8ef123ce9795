"""``imgbuild size``: where the bytes of the images are, what they share, and what is wasted."""

import json
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import select, takes_selection
from imgbuild.cli.telling import say
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.engine.client import Engine
    from imgbuild.matrix.images import Image
    from imgbuild.project import Project
    from imgbuild.settings import Settings
    from imgbuild.sizes.store import SizeStore
    from imgbuild.sizes.weighed import Weighed


@takes_selection()
def size(
    selection: Selection,
    image: Annotated[
        list[str] | None,
        typer.Option("--image", help="An image of the engine, by name or id; repeatable."),
    ] = None,
    waste: Annotated[
        bool, typer.Option("--waste", help="Name the largest files that were written in vain.")
    ] = False,
    write_budgets: Annotated[
        bool,
        typer.Option("--write-budgets", help="Make the sizes the images' budgets in matrix.yaml."),
    ] = False,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Show how large images are, by layer and by component; exit 1 if one exceeds its budget.

    Without a selection it is every image of the matrix that is built.
    """
    from imgbuild.cli.size_tables import size_lines
    from imgbuild.engine.client import Engine
    from imgbuild.engine.endpoint import resolve_host
    from imgbuild.errors import InputError
    from imgbuild.settings import load_settings
    from imgbuild.sizes import weighed as measured

    if image and selection != Selection():
        raise InputError("--image names images by themselves; leave the selection out.")
    opened = options.open_project(project)
    settings = load_settings(opened.settings)
    named = [one.endswith("-as-documented") for one in selection.names]
    documented = selection.as_documented or any(named)
    if write_budgets and (image or documented or settings.standin):
        raise InputError(
            "--write-budgets is for images of the matrix: not for --image, --as-documented, nor "
            "for what this machine builds from stand-ins."
        )
    images: Sequence[Image] = ()
    if not image:
        images = select(opened, selection.or_everything)
    with closing(Engine(resolve_host(settings.engine))) as engine:
        found = _weigh_others(image, engine) if image else _weigh(images, engine, settings)
    if as_json:
        typer.echo(json.dumps(measured.as_json(found), indent=2))
    else:
        typer.echo(size_lines(found, waste=waste))
    if write_budgets:
        _write_budgets(opened, images, found)
    else:
        _judge(found)


def _weigh(images: "Sequence[Image]", engine: "Engine", settings: "Settings") -> "list[Weighed]":
    """Return images of the matrix; what is built from stand-ins has no budget."""
    from imgbuild.errors import InputError
    from imgbuild.matrix.images import standin_image
    from imgbuild.project import cache_dir
    from imgbuild.sizes.store import size_store

    if settings.standin:
        images = [standin_image(image) for image in images]
    budgets = [None if settings.standin else image.budget for image in images]
    store = size_store(cache_dir())
    found = [
        _one(image.name, image.tags[0], engine, store, budget)
        for image, budget in zip(images, budgets, strict=True)
    ]
    if not any(one.measured for one in found):
        named = ", ".join(one.name for one in found)
        raise InputError(f"The engine has none of the selected images: {named}. Build them first.")
    return found


def _weigh_others(references: list[str], engine: "Engine") -> "list[Weighed]":
    from imgbuild.errors import InputError
    from imgbuild.project import cache_dir
    from imgbuild.sizes.store import size_store

    store = size_store(cache_dir())
    found = [_one(reference, reference, engine, store) for reference in references]
    missing = [one.reference for one in found if one.measured is None]
    if missing:
        raise InputError(f"The engine has no image {', '.join(missing)}.")
    return found


def _one(
    name: str, reference: str, engine: "Engine", store: "SizeStore", budget: int | None = None
) -> "Weighed":
    from imgbuild.sizes.measure import measure
    from imgbuild.sizes.weighed import Weighed

    stored = engine.inspect(reference)
    measured = measure(stored.id, name, engine, store, say) if stored else None
    return Weighed(name, reference, measured, budget)


def _judge(found: "Sequence[Weighed]") -> None:
    """Raise if an image exceeds its budget.

    Raises:
        CheckFailedError: every one that does, and by how much.

    """
    from imgbuild.errors import CheckFailedError
    from imgbuild.sizes.budget import excess

    lines = [
        f"{one.name}: {excess(one.measured.size, one.budget)}"
        for one in found
        if one.measured and one.budget and one.exceeded
    ]
    if lines:
        raise CheckFailedError("\n".join(lines))


def _write_budgets(
    project: "Project", images: "Sequence[Image]", found: "Sequence[Weighed]"
) -> None:
    """Make the sizes of the images that are built their budgets."""
    from imgbuild.sizes.agree import agree

    pairs = zip(images, found, strict=True)
    sizes = [(image, one.measured.size) for image, one in pairs if one.measured]
    for name, budget in agree(project.matrix, images[0].matrix, sizes).items():
        say(f"{name}: budget {budget} MB")
    say(f"matrix.yaml has {len(sizes)} budgets.")
