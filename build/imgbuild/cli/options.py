"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.project import Project, find_project

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image

ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        envvar="IMGBUILD_PROJECT",
        metavar="DIR",
        help="The checkout to work on. Default: the one around the current folder.",
        show_default=False,
    ),
]
TfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tf", metavar="VERSION", help="TensorFlow version, such as 2.2 or 2.2.0; repeatable."
    ),
]
CpuOption = Annotated[bool, typer.Option("--cpu", help="The CPU variant (the default).")]
GpuOption = Annotated[bool, typer.Option("--gpu", help="The GPU variant.")]
StackOption = Annotated[
    str | None,
    typer.Option("--stack", metavar="STACK", help="The stack of the image, such as debian."),
]
MpiOption = Annotated[
    str | None,
    typer.Option(
        "--mpi", metavar="FLAVOUR", help="The MPI: openmpi or intelmpi. Default: the stack's."
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every image of the matrix.")]
AsDocumentedOption = Annotated[
    bool,
    typer.Option(
        "--as-documented",
        help="The documented pins, even where they cannot work (--tf 2.1 --gpu).",
    ),
]
NameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="IMAGE",
        help="Exactly this image, such as tf-2.2-cpu-debian; repeatable. Excludes --tf and the "
        "other selection options.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_project(path: Path | None) -> Project:
    """Return the checkout that ``--project`` names, or the one around the current folder."""
    return find_project(path.resolve() if path else Path.cwd())


def seconds(text: str | None, option: str) -> float | None:
    """Return the seconds of a duration on the command line.

    Raises:
        InputError: the text is no duration.

    """
    from imgbuild.errors import InputError
    from imgbuild.text import parse_duration

    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}.") from None


def select(
    project: Project,
    tf: list[str] | None,
    cpu: bool,
    gpu: bool,
    stack: str | None,
    mpi: str | None,
    everything: bool,
    as_documented: bool = False,
    *,
    names: list[str] | None = None,
) -> "tuple[Image, ...]":
    """Return the images that the selection options select.

    ``names`` selects exactly these images, without any other option. ``as_documented`` selects the
    documented pins: a named version must have other ones, with ``everything`` those without are
    left out.
    """
    from imgbuild.matrix.images import as_documented as with_documented_pins
    from imgbuild.matrix.load import load_matrix
    from imgbuild.matrix.selection import Selection, select_images

    if names:
        from imgbuild.matrix.selection import named_images

        _require_alone(tf, cpu, gpu, stack, mpi, everything, as_documented)
        return named_images(load_matrix(project.matrix), names)
    selection = Selection(tuple(tf or ()), cpu, gpu, stack, mpi, everything)
    images = select_images(load_matrix(project.matrix), selection)
    return with_documented_pins(images, each=not everything) if as_documented else images


def _require_alone(*others: object) -> None:
    """Refuse other selection options beside ``--name``."""
    from imgbuild.errors import InputError

    if any(others):
        raise InputError(
            "--name cannot be combined with --tf, --cpu, --gpu, --stack, --mpi, --all or "
            "--as-documented."
        )
