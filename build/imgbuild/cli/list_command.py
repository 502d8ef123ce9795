"""``imgbuild list``: the matrix as a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from imgbuild.cli.options import (
    JsonOption,
    ProjectOption,
    open_project,
    print_json,
    select,
    takes_selection,
)
from imgbuild.matrix.selection import Selection
from imgbuild.text import aligned

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image


@takes_selection(without="everything")
def list_images(
    selection: Selection,
    as_json: JsonOption = False,
    project: ProjectOption = None,
) -> None:
    """List the images of the matrix."""
    from imgbuild.matrix.tags import planned_tags

    opened = open_project(project)
    images = select(opened, selection.or_everything)
    if as_json:
        print_json([{**one.as_json(), "published": planned_tags(one).as_json()} for one in images])
    else:
        typer.echo("\n".join(aligned(_rows(images))))


def _rows(images: Sequence["Image"]) -> list[tuple[str, ...]]:
    columns = ["tensorflow", "python", "mpi", "horovod", "tensorboard"]
    if any(image.variant == "gpu" for image in images):
        columns.append("cuda")
    rows = [(image.name, *(image.keys.get(name, "-") for name in columns)) for image in images]
    return [("image", *columns), *rows]
