"""What commands share: options for the checkout, JSON and images, and lines of information."""

import functools
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imgbuild.matrix.selection import Selection
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
JobsOption = Annotated[
    int,
    typer.Option("--jobs", min=1, max=64, metavar="N", help="How many images to test at once."),
]
#: The default of ``--jobs`` where images are tested.
JOBS = min(os.cpu_count() or 1, 4)


def repository_option(name: str, help_text: str) -> Any:  # noqa: ANN401 - what Typer's own returns
    """Return an option that takes a repository of a registry."""
    return typer.Option(name, metavar="HOST[:PORT]/REPOSITORY", help=help_text)


def info(text: str) -> None:
    """Write a line to standard error; standard output is for the result."""
    typer.echo(text, err=True)


def print_json(result: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """Print the result of a command with ``--json``."""
    typer.echo(json.dumps(result, indent=2))


def open_project(path: Path | None) -> Project:
    """Return the checkout that ``--project`` names, or the one around the current folder."""
    return find_project(path.resolve() if path else Path.cwd())


def select(project: Project, selection: Selection) -> "tuple[Image, ...]":
    """Return the images of the checkout that the selection options mean.

    Raises:
        InputError: the matrix is wrong, no image matches, or options contradict each other.

    """
    from imgbuild.matrix.load import load_matrix
    from imgbuild.matrix.selection import select_images

    return select_images(load_matrix(project.matrix), selection)


def _selection(
    tf: TfOption = None,
    cpu: CpuOption = False,
    gpu: GpuOption = False,
    stack: StackOption = None,
    mpi: MpiOption = None,
    everything: AllOption = False,
    as_documented: AsDocumentedOption = False,
    name: NameOption = None,
) -> Selection:
    versions, names = tuple(tf or ()), tuple(name or ())
    return Selection(versions, cpu, gpu, stack, mpi, everything, as_documented, names)


def takes_selection(*, without: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator: a command gets the selection options for its parameter ``selection``.

    Typer reads a command's options from its signature, so the signature gets them. ``without`` is
    one that the command lacks.
    """
    shared = dict(inspect.signature(_selection).parameters)
    shared.pop(without, None)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = []
        for one in inspect.signature(command).parameters.values():
            replaced = shared.values() if one.name == "selection" else (one,)
            parameters += [own.replace(kind=inspect.Parameter.KEYWORD_ONLY) for own in replaced]

        @functools.wraps(command)
        def run(**values: Any) -> None:  # noqa: ANN401 - what Typer parsed
            own = {name: values.pop(name) for name in shared if name in values}
            command(selection=_selection(**own), **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate
