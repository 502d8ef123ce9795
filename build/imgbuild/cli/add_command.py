"""``imgbuild add``: add a release of TensorFlow to the matrix."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from imgbuild.cli.options import PROJECT, STACK, echo, flag, info, require_own, sites_of
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image
    from imgbuild.matrix.model import Variant
    from imgbuild.matrix.new_row import NewRow

#: Pins that were copied from another row or are the newest that fit, so that people must decide.
_JUDGED = ("tensorboard", "horovod", "python")


def add(
    version: str = typer.Argument(
        "", metavar="VERSION", help="Release to add, for example 2.3.4.", show_default=False
    ),
    stack: str | None = STACK,
    cpu: bool = flag("--cpu", "Add the CPU variant. Default: the variants of the copied row."),
    gpu: bool = flag("--gpu", "Add the GPU variant. Default: the variants of the copied row."),
    checkout: Project = PROJECT,
) -> None:
    """Add a release of TensorFlow to the matrix, with all its files.

    The new row is a copy of the next older release's row. If both releases have the same minor
    version, the new row replaces the old one. Either all files are written or none. The last lines
    of the output list the decisions left to you.

    Example: imgbuild add 2.3.4
    """
    from pydantic import TypeAdapter, ValidationError

    from imgbuild.core import scalars
    from imgbuild.maintain.new_version import add_version
    from imgbuild.matrix.load import load_matrix
    from imgbuild.matrix.new_row import new_row

    try:
        TypeAdapter(scalars.Release).validate_python(version)
    except ValidationError:
        raise InputError(
            f"{version!r} is not a release: give three numbers, for example `imgbuild add 2.3.4`."
        ) from None
    require_own(checkout, "add")
    matrix = load_matrix(checkout.matrix)
    variants: list[Variant] = [*(("cpu",) if cpu else ()), *(("gpu",) if gpu else ())]
    row = new_row(matrix, checkout.matrix, version, stack, variants)
    sites = sites_of(checkout, matrix)
    changed, images = add_version(checkout, row, sites, info)
    for path in changed:
        action = "written" if path.exists() else "deleted"
        echo(f"{action}  {path.relative_to(checkout.root)}")
    echo("\n".join(_list_decisions(row, images)))


def _list_decisions(row: "NewRow", images: "Sequence[Image]") -> list[str]:
    image, before = images[0], f"TensorFlow {row.like.tensorflow}"
    names = " ".join(image.name for image in images)
    pins = ", ".join(f"{name} {image.version_of(name)}" for name in _JUDGED)
    lines = ["", "Still to decide (CONTRIBUTING.md):"]
    lines.append(f"- Are the pins of {before} right for {row.version}? {pins}")
    if row.cudnn and image.release.cudnn == row.cudnn:
        lines.append(
            f"- Is `cudnn` of the release right? {row.cudnn} was copied from the nearest release."
        )
    lines.append("- Which `budget` does the row get? See `imgbuild show --layers` after the build.")
    lines.append(f"Then build and test it: `imgbuild build {names}`.")
    lines.append("In a checkout of imgbuild, update tests and docs with `make derived`.")
    return lines
