"""The doctor's findings for people: a table on a terminal, plain lines elsewhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imgbuild.doctor.finding import Finding, Status

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {
    Status.FINE: "green",
    Status.WARNING: "yellow",
    Status.MISSING: "red",
    Status.SKIPPED: "dim",
}


def show(findings: Sequence[Finding], console: "Console") -> None:
    """Print the findings; what mends them is never cut or wrapped, so that it can be copied."""
    if console.is_terminal:
        _show_table(findings, console)
        return
    width = max(len(row.what) for row in findings)
    for row in findings:
        print(f"{row.status.sign} {row.what:<{width}}  {row.detail}", file=console.file)
        if row.mend:
            print(f"  {'':<{width}}  -> {row.mend}", file=console.file)


def _show_table(findings: Sequence[Finding], console: "Console") -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in findings:
        sign = Text(row.status.sign, style=_COLOURS[row.status])
        table.add_row(sign, row.what, Text(row.detail))
    console.print(table)
    for row in findings:
        if row.mend:
            console.print(Text(f"\n{row.status.sign} {row.what}:", style=_COLOURS[row.status]))
            console.print(Text(f"  {row.mend}"), soft_wrap=True)
