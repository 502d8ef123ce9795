"""``imgbuild list``: the matrix as a table."""

import json
from typing import TYPE_CHECKING

import typer

from imgbuild.cli.options import (
    CpuOption,
    GpuOption,
    JsonOption,
    ProjectOption,
    StackOption,
    TfOption,
    open_project,
    select,
)
from imgbuild.cli.text_table import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.matrix.image import Image


def list_images(
    tf: TfOption = None,
    cpu: CpuOption = False,
    gpu: GpuOption = False,
    stack: StackOption = None,
    as_json: JsonOption = False,
    project: ProjectOption = None,
) -> None:
    """List the images of the matrix."""
    images = select(open_project(project), tf, cpu, gpu, stack, everything=not tf)
    if as_json:
        typer.echo(json.dumps([image.as_json() for image in images], indent=2))
        return
    typer.echo("\n".join(aligned(_rows(images))))


def _rows(images: "Sequence[Image]") -> list[tuple[str, ...]]:
    columns = ["tensorflow", "python", "mpi", "horovod", "tensorboard"]
    if any(image.variant == "gpu" for image in images):
        columns.append("cuda")
    rows = [("image", *columns)]
    for image in images:
        pins = {pin.component: pin.version for pin in image.pins} | {"mpi": image.mpi_name}
        rows.append((image.name, *(pins.get(column, "-") for column in columns)))
    return rows
