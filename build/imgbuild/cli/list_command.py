"""``imgbuild list``: the matrix as a table."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import print_result, select, takes_selection
from imgbuild.matrix.selection import Selection
from imgbuild.text import aligned

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image

NOTE = "as-documented: the documented pins that the matrix corrects (`imgbuild show`)."


@takes_selection(without="everything")
def list_images(
    selection: Selection, as_json: bool = options.JSON, project: Path | None = options.PROJECT
) -> None:
    """List the images of the matrix, or those that fit the options.

    There are no defaults: `--tf 2.2` lists each stack, variant and MPI, and the images as
    documented where the matrix corrects their pins.
    """
    from imgbuild.matrix.images import as_documented_image
    from imgbuild.matrix.tags import planned_tags

    images = select(options.open_project(project), selection.without_defaults)
    if not selection.names:
        others = map(as_documented_image, images)
        images = (*images, *(one for one in others if one.documented and one not in images))
    result = [{**one.as_json(), "published": asdict(planned_tags(one))} for one in images]
    print_result(result, _lines(images), as_json=as_json)


def _lines(images: "tuple[Image, ...]") -> list[str]:
    """Return a table with a paragraph for each release of TensorFlow."""
    columns = ["python", "mpi", "horovod"]
    columns += ["cuda"] if any(image.variant == "gpu" for image in images) else []
    ordered = sorted(images, key=lambda one: [int(n) for n in one.tensorflow.split(".")])
    rows = [(one.name, *(one.keys.get(name, "-") for name in columns)) for one in ordered]
    head, *table = aligned([("image", *columns), *rows])
    lines = [head]
    for image, line in zip(ordered, table, strict=True):
        title = f"TensorFlow {image.tensorflow}, TensorBoard {image.version_of('tensorboard')}"
        lines += [line] if title in lines else ["", title, line]
    if any(image.documented for image in images):
        lines += ["", NOTE]
    return lines
