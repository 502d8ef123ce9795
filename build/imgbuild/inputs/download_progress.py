"""Show how far downloads are: lines, or bars on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from imgbuild.text import size_text

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class DownloadProgress:
    """Writes a line for each file that is complete, and draws ``bars`` of those under way.

    Threads may share it. Sizes are in bytes.
    """

    def __init__(
        self, write: Callable[[str], None] = lambda _: None, bars: "RichProgress | None" = None
    ) -> None:
        self._write = write
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def begin(self, name: str, done: int, total: int | None) -> None:
        """Take note that ``done`` of ``total`` bytes are here; called again with each try."""
        if self._bars:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name)
            self._bars.reset(self._tasks[name], total=total, completed=done)

    def advance(self, name: str, size: int) -> None:
        """Take note that ``size`` more bytes have come."""
        if self._bars:
            self._bars.advance(self._tasks[name], size)

    def end(self, name: str, size: int) -> None:
        """Show that the file is complete."""
        if self._bars and name in self._tasks:  # not if all of the file was there already
            self._bars.remove_task(self._tasks.pop(name))
        self._write(f"fetched {name} ({size_text(size)})")

    def damaged(self, name: str) -> None:
        """Show that a file in the cache was damaged, and removed."""
        self._write(f"{name} in the cache was damaged (its sha256 is another): it is fetched again")


@contextmanager
def shown_progress() -> Iterator[DownloadProgress]:
    """Give bars if standard error is a terminal, else lines on it."""
    if not sys.stderr.isatty():
        yield DownloadProgress(lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
        return
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn  # noqa: PLC0415

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bars:
        yield DownloadProgress(bars.console.print, bars)
