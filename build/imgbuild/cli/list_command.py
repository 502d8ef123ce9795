"""``imgbuild list``: the matrix as a table."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from imgbuild.cli.options import JsonOption, ProjectOption, open_project, select, takes_selection
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
    opened = open_project(project)
    images = select(opened, selection.or_everything)
    if as_json:
        typer.echo(json.dumps([_described(image) for image in images], indent=2))
        return
    typer.echo("\n".join(aligned(_rows(images))))


def _described(image: "Image") -> dict[str, Any]:
    from imgbuild.matrix.tags import planned_tags

    return {**image.as_json(), "published": planned_tags(image).as_json()}


def _rows(images: Sequence["Image"]) -> list[tuple[str, ...]]:
    columns = ["tensorflow", "python", "mpi", "horovod", "tensorboard"]
    if any(image.variant == "gpu" for image in images):
        columns.append("cuda")
    rows = [("image", *columns)]
    for image in images:
        pins = {pin.component: pin.version for pin in image.pins} | {"mpi": image.mpi_name}
        rows.append((image.name, *(pins.get(column, "-") for column in columns)))
    return rows
