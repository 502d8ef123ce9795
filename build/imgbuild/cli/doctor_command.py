"""``imgbuild doctor``: check whether this machine can build, and name what fixes it if not."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import option, print_json
from imgbuild.errors import MachineError
from imgbuild.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from imgbuild.doctor.checks import Finding


def doctor(
    write: Annotated[
        bool, option("--write", "Write the inputs of this machine to imgbuild.local.yaml.")
    ] = False,
    stack: Annotated[
        str | None, option("--stack STACK", "Check only what images of this stack need.")
    ] = None,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Check whether this machine can build, and name the command that fixes each fault."""
    from rich.console import Console

    from imgbuild.doctor.checks import Status
    from imgbuild.doctor.diagnosis import diagnose, write_settings
    from imgbuild.inputs.build_inputs import check_settings
    from imgbuild.matrix.load import load_matrix
    from imgbuild.settings import load_settings

    opened = options.open_project(project)
    matrix, settings = load_matrix(opened.matrix), load_settings(opened.settings)
    check_settings(settings, matrix)
    findings, choice = diagnose(opened, matrix, settings, stack, writing=write)
    missing = [row.what for row in findings if row.status is Status.MISSING]
    if as_json:
        rows = [
            {"status": row.status.value[0], "what": row.what, "detail": row.detail, "mend": row.fix}
            for row in findings
        ]
        chosen = choice.model_dump(mode="json", by_alias=True, exclude_none=True)
        print_json({"able": not missing, "findings": rows, "choice": chosen})
    else:
        show(findings, Console(file=getattr(sys.stdout, "styled", None)))
    if write:
        changed = write_settings(choice, opened.settings)
        state = "written" if changed else "unchanged; it says this already"
        typer.echo(f"{opened.settings}: {state}.", err=True)
    if missing:
        names = ", ".join(missing)
        raise MachineError(f"this machine cannot build yet: {names}. The fixes are listed above.")


def show(findings: "Sequence[Finding]", console: "Console") -> None:
    """Print the findings; a fix is never cut or wrapped, so that it can be copied."""
    from rich.table import Table
    from rich.text import Text

    rows = [
        (row.status.value, row.what, printable(row.detail), printable(row.fix or ""))
        for row in findings
    ]
    if not console.is_terminal:
        width = max(len(row.what) for row in findings)
        for (_, sign, _), what, detail, fix in rows:
            print(f"{sign} {what:<{width}}  {detail}", file=console.file)
            if fix:
                print(f"  {'':<{width}}  -> {fix}", file=console.file)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for (_, sign, style), what, detail, _ in rows:
        table.add_row(Text(sign, style=style), what, Text(detail))
    console.print(table)
    for (_, sign, style), what, _, fix in rows:
        if fix:
            console.print(Text(f"\n{sign} {what}:", style=style))
            console.print(Text(f"  {fix}"), soft_wrap=True)
