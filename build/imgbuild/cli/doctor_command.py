"""``imgbuild doctor``: check whether this machine can build, and name what fixes it if not."""

from typing import Annotated

import typer

from imgbuild.cli.options import JsonOption, ProjectOption, open_project, option, print_json
from imgbuild.errors import MachineError


def doctor(
    write: Annotated[
        bool, option("--write", "Write the inputs of this machine to imgbuild.local.yaml.")
    ] = False,
    as_json: JsonOption = False,
    project: ProjectOption = None,
) -> None:
    """Check whether this machine can build, and name the command that fixes each fault."""
    from rich.console import Console

    from imgbuild.doctor.checks import diagnose, write_settings
    from imgbuild.doctor.show import show
    from imgbuild.inputs.build_inputs import check_settings
    from imgbuild.matrix.load import load_matrix
    from imgbuild.settings import load_settings

    opened = open_project(project)
    matrix, settings = load_matrix(opened.matrix), load_settings(opened.settings)
    check_settings(settings, matrix)
    found = diagnose(opened, matrix, settings, writing=write)
    if as_json:
        choice = found.choice.model_dump(mode="json", by_alias=True, exclude_none=True)
        rows = [row.as_json() for row in found.findings]
        print_json({"able": not found.missing, "findings": rows, "choice": choice})
    else:
        show(found.findings, Console())
    if write:
        changed = write_settings(found.choice, opened.settings)
        state = "written" if changed else "unchanged; it says this already"
        typer.echo(f"{opened.settings}: {state}.", err=True)
    if found.missing:
        names = ", ".join(row.what for row in found.missing)
        raise MachineError(f"this machine cannot build yet: {names}. The fixes are listed above.")
