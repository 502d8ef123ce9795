"""The picture of a build on a terminal: a line an image, and a bar for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from imgbuild.engine.step_text import about, clock_time, moved_text, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.engine.board import Board
    from imgbuild.engine.row import Row

_STYLES = {
    "waiting": "dim",
    "up to date": "dim",
    "building": "cyan",
    "exporting": "cyan",
    "built": "blue",
    "testing": "magenta",
    "pushing": "cyan",
    "published": "green",
    "passed": "green",
    "named": "green",
    "failed": "bold red",
    "cancelled": "yellow",
}
#: Which rows are shown first where not all can be: what needs attention, then what moves.
_URGENCY = {"failed": 0, "exporting": 1, "building": 1, "testing": 1, "built": 2, "cancelled": 3}
_NARROW = 100
_BAR_WIDTH = 30


def table(board: Board, width: int, height: int, now: float) -> Table:
    """Return the rows that fit in ``height`` lines; a last one sums up the others."""
    shown, hidden = _chosen([*board.rows.values()], height)
    cells = [_cells(row, now) for row in shown]
    grid = Table.grid(padding=(0, 1 if width < _NARROW else 2, 0, 0), expand=True)
    used = [number for number in range(5) if any(cell[number] for cell in cells)]
    for number in used:
        grid.add_column(no_wrap=True, justify="right" if number in {2, 3, 4} else "left")
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row, cell in zip(shown, cells, strict=True):
        style = _STYLES.get(row.state, "")
        texts = [Text(cell[number], style=style if number == 1 else "") for number in used]
        grid.add_row(*texts, Text(shortened(row.step)))
    if hidden:
        grid.add_row(Text(f"and {len(hidden)} more"), Text(), *_rest(hidden, len(used) - 1))
    return grid


def bar(board: Board, fraction: float, left: float | None, width: int, now: float) -> Table:
    """Return the line below: images done, how much of the work, the time, and what is left."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    length = min(_BAR_WIDTH, max(10, width - 55))
    text = overall_text(board, fraction, left, now)
    grid.add_row(ProgressBar(100, fraction * 100, width=length), Text(text, no_wrap=True))
    return grid


def overall_text(board: Board, fraction: float, left: float | None, now: float) -> str:
    """Return ``12 of 34 done  45 %  3m12s  about 6m left``."""
    total = len(board.busy)
    parts = [f"{board.done} of {total} done", f"{fraction * 100:.0f} %"]
    parts += [] if board.begun is None else [clock_time(now - board.begun)]
    parts += [f"about {about(left)} left"] if left is not None and board.done < total else []
    return "  ".join(parts)


def _chosen(rows: Sequence[Row], height: int) -> tuple[list[Row], list[Row]]:
    if len(rows) <= height:
        return [*rows], []
    urgent = sorted(rows, key=lambda row: (_URGENCY.get(row.state, 4), row.state != "waiting"))
    first = {row.image for row in urgent[: max(1, height - 1)]}
    shown = [row for row in rows if row.image in first]
    return shown, [row for row in rows if row.image not in first]


def _rest(hidden: Sequence[Row], columns: int) -> list[Text]:
    """Return the cells of the last line, the last of them: how many are in which state."""
    states = dict.fromkeys(row.state for row in hidden)
    counts = [f"{sum(row.state == state for row in hidden)} {state}" for state in states]
    return [*(Text() for _ in range(columns - 1)), Text(", ".join(counts), style="dim")]


def _cells(row: Row, now: float) -> tuple[str, str, str, str, str]:
    elapsed, fraction = row.elapsed(now), row.fraction
    return (
        row.image,
        row.state,
        "" if elapsed is None else clock_time(elapsed),
        "" if fraction is None or row.to_do != "build" else f"{int(fraction * 100)}%",
        moved_text(*row.bytes),
    )
