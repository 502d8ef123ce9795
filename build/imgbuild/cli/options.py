"""Options that several commands share, and what they stand for."""

from pathlib import Path
from typing import Annotated

import typer

from imgbuild.project import Project, find_project

ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        envvar="IMGBUILD_PROJECT",
        help="The checkout to work on. Default: the one that the current folder lies in.",
        show_default=False,
    ),
]
TfOption = Annotated[
    list[str] | None,
    typer.Option("--tf", help="TensorFlow version, such as 2.2 or 2.2.0; repeatable."),
]
CpuOption = Annotated[bool, typer.Option("--cpu", help="The CPU variant (the default).")]
GpuOption = Annotated[bool, typer.Option("--gpu", help="The GPU variant.")]
StackOption = Annotated[
    str | None, typer.Option("--stack", help="What the image stands on, such as debian.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Every image of the matrix.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def open_project(path: Path | None) -> Project:
    """Return the checkout that ``--project`` names, or the one around the current folder."""
    return find_project(path.resolve() if path else Path.cwd())
