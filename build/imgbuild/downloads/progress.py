"""Who hears how far downloads are: nobody, a list of lines, or bars on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from imgbuild.downloads.download import Download
from imgbuild.text import size_text

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


_DAMAGED = "{} in the cache was damaged (its sha256 is another): it is fetched again"


class Progress(Protocol):
    """Hears of each download as it goes on; called from several threads. Sizes are in bytes."""

    def begin(self, download: Download, done: int, total: int | None) -> None:
        """Hear that ``done`` of ``total`` bytes are here; again after each new start."""

    def advance(self, download: Download, size: int) -> None:
        """Hear that ``size`` more bytes have come."""

    def end(self, download: Download, size: int) -> None:
        """Hear that the file is in the store, and how large it is."""

    def damaged(self, download: Download) -> None:
        """Hear that the file of the store is not what its sha256 says, and was thrown away."""


class Silence:
    """Hears and says nothing."""

    def begin(self, download: Download, done: int, total: int | None) -> None:
        """Say nothing."""

    def advance(self, download: Download, size: int) -> None:
        """Say nothing."""

    def end(self, download: Download, size: int) -> None:
        """Say nothing."""

    def damaged(self, download: Download) -> None:
        """Say nothing."""


class Lines(Silence):
    """Says one line a file, when it is here."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def end(self, download: Download, size: int) -> None:
        """Say that the file is here."""
        self._say(f"fetched {download.file_name} ({size_text(size)})")

    def damaged(self, download: Download) -> None:
        """Say which file is fetched again, and why."""
        self._say(_DAMAGED.format(download.file_name))


class Rows(Silence):
    """Draws one bar a file that is under way, and a line for each that is here."""

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._tasks: dict[Download, TaskID] = {}

    def begin(self, download: Download, done: int, total: int | None) -> None:
        """Draw the bar at its beginning."""
        if download in self._tasks:
            self._bars.reset(self._tasks[download], total=total, completed=done)
        else:
            self._tasks[download] = self._bars.add_task(
                download.file_name, total=total, completed=done
            )

    def advance(self, download: Download, size: int) -> None:
        """Lengthen the bar."""
        self._bars.advance(self._tasks[download], size)

    def end(self, download: Download, size: int) -> None:
        """Take the bar away."""
        self._bars.remove_task(self._tasks.pop(download))
        self._bars.console.print(f"fetched {download.file_name} ({size_text(size)})")

    def damaged(self, download: Download) -> None:
        """Say which file is fetched again, and why."""
        self._bars.console.print(_DAMAGED.format(download.file_name))


SILENCE = Silence()


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Give bars if standard error is a terminal, else lines on it."""
    if not sys.stderr.isatty():
        yield Lines(lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
        return
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn  # noqa: PLC0415

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bars:
        yield Rows(bars)
