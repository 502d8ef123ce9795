"""One row of what ``imgbuild doctor`` found, and a table of them for people."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


class Status(Enum):
    """The state of one thing: its name in JSON, its sign, its colour."""

    FINE = ("ok", "✓", "green")
    WARNING = ("warning", "!", "yellow")
    #: The only one that keeps a build from being done.
    MISSING = ("missing", "✗", "red")
    SKIPPED = ("skipped", "–", "dim")  # noqa: RUF001

    @property
    def sign(self) -> str:
        """One character for people."""
        return self.value[1]


@dataclass(frozen=True)
class Finding:
    """What was checked, its state, and the command or sentence that fixes it."""

    status: Status
    what: str
    detail: str
    fix: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """Return what ``--json`` prints of this row."""
        name = self.status.value[0]
        return {"status": name, "what": self.what, "detail": self.detail, "mend": self.fix}


def install_command(*packages: str) -> str:
    """Return the command that installs Debian packages here, or what to do without apt."""
    if not shutil.which("apt-get"):
        return f"install {' '.join(packages)} with this system's package manager"
    return f"{sudo()}apt-get install -y {' '.join(packages)}"


def sudo() -> str:
    """Return what begins a command that only root may run."""
    return "" if os.geteuid() == 0 else "sudo "


def show(findings: Sequence[Finding], console: "Console") -> None:
    """Print the findings; a fix is never cut or wrapped, so that it can be copied."""
    if console.is_terminal:
        _show_table(findings, console)
        return
    width = max(len(row.what) for row in findings)
    for row in findings:
        print(f"{row.status.sign} {row.what:<{width}}  {row.detail}", file=console.file)
        if row.fix:
            print(f"  {'':<{width}}  -> {row.fix}", file=console.file)


def _show_table(findings: Sequence[Finding], console: "Console") -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in findings:
        table.add_row(Text(row.status.sign, style=row.status.value[2]), row.what, Text(row.detail))
    console.print(table)
    for row in findings:
        if row.fix:
            console.print(Text(f"\n{row.status.sign} {row.what}:", style=row.status.value[2]))
            console.print(Text(f"  {row.fix}"), soft_wrap=True)
