"""``imgbuild list``: the matrix as a table."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from imgbuild.cli.options import JSON, PROJECT, flag, print_result, select, takes_selection
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image

_WIDE = ("driver", "MB at most", "tags")


@takes_selection(without="everything")
def list_images(
    selection: Selection,
    wide: bool = flag("--wide", "Also the oldest driver, the budget of the size, and the tags."),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """List the images of the matrix, or those that fit the options.

    There are no defaults: `--tf 2.2` lists each stack, variant and MPI.
    """
    from imgbuild.matrix.images import planned_tags

    images = select(checkout, selection.without_defaults)
    result = []
    for image in images:
        facts = image.as_json()
        facts["driver"] = image.cuda and image.cuda.driver
        facts["budget"] = image.budget
        facts["published"] = asdict(planned_tags(image))
        result.append(facts)
    lines = _lines(images, wide=wide)
    print_result(result, lines, as_json=as_json)


def _lines(images: "tuple[Image, ...]", *, wide: bool) -> list[str]:
    """Return a table with a paragraph for each release of TensorFlow."""
    columns = ["python", "mpi", "horovod"]
    if any(image.variant == "gpu" for image in images):
        columns.append("cuda")
    ordered = sorted(images, key=lambda image: [int(n) for n in image.tensorflow.split(".")])
    rows = [("image", *columns, *(_WIDE if wide else ()))]
    for image in ordered:
        cells = [image.keys.get(column, "-") for column in columns]
        rows.append((image.name, *cells, *(_wide_cells(image) if wide else ())))
    head, *table = align_rows(rows)
    lines = [head]
    for image, line in zip(ordered, table, strict=True):
        title = f"TensorFlow {image.tensorflow}, TensorBoard {image.version_of('tensorboard')}"
        if title not in lines:
            lines += ["", title]
        lines.append(line)
    return lines


def _wide_cells(image: "Image") -> tuple[str, ...]:
    driver = image.cuda.driver if image.cuda else "-"
    budget = f"{image.budget / 1e6:.0f}" if image.budget else "-"
    tags = " ".join(image.tags)
    return driver, budget, tags
