"""``imgbuild doctor``: check whether this machine can build, and name what fixes it if not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from imgbuild.cli import options
from imgbuild.cli.options import info, option, print_json
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
        show(findings, Console())
    if write:
        changed = write_settings(choice, opened.settings)
        state = "written" if changed else "unchanged; it says this already"
        info(f"{opened.settings}: {state}.")
    if missing:
        names = ", ".join(missing)
        raise MachineError(f"this machine cannot build yet: {names}. The fixes are listed above.")


def show(findings: "Sequence[Finding]", console: "Console") -> None:
    """Print the findings; a fix is never cut or wrapped, so that it can be copied."""
    from rich.table import Table
    from rich.text import Text

    if not console.is_terminal:
        width = max(len(row.what) for row in findings)
        for row in findings:
            fix = f"\n  {'':<{width}}  -> {row.fix}" if row.fix else ""
            line = f"{row.status.value[1]} {row.what:<{width}}  {row.detail}{fix}"
            print(printable(line), file=console.file)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in findings:
        _, sign, style = row.status.value
        table.add_row(Text(sign, style=style), row.what, Text(printable(row.detail)))
    console.print(table)
    for row in findings:
        if row.fix:
            _, sign, style = row.status.value
            console.print(Text(f"\n{sign} {row.what}:", style=style))
            console.print(Text(f"  {printable(row.fix)}"), soft_wrap=True)
