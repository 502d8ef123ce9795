"""What is being read, on stderr: a bar on a terminal, a line an artifact elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO


class Progress(Protocol):
    """Told by several threads at once."""

    def arrived(self, size: int) -> None:
        """Take note of some bytes."""

    def finished(self, what: str) -> None:
        """Take note of one more artifact; ``what`` says which and how."""


class Silent:
    """Says nothing."""

    def arrived(self, size: int) -> None:
        """Say nothing."""

    def finished(self, what: str) -> None:
        """Say nothing."""


class Lines:
    """A line an artifact: for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def arrived(self, size: int) -> None:
        """Say nothing: a log is no place for every piece."""

    def finished(self, what: str) -> None:
        """Print what is done."""
        self._stream.write(f"{what}\n")  # one call: several threads speak
        self._stream.flush()


@contextmanager
def shown(total: int, stream: TextIO | None = None) -> Iterator[Progress]:
    """Give the progress of ``total`` artifacts, as a bar if ``stream`` (stderr) is a terminal."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield Lines(stream)
        return
    from rich.console import Console  # noqa: PLC0415 - rich is slow to import
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    size = TextColumn("{task.fields[megabytes]:.1f} MB")
    with RichProgress(*columns, size, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task("reading artifacts", total=total, megabytes=0.0)
        yield _Bar(bar, task)


class _Bar:
    """The bar on a terminal; what is finished shows in its count."""

    def __init__(self, bar: "object", task: int) -> None:
        self._bar, self._task, self._bytes = bar, task, 0

    def arrived(self, size: int) -> None:
        """Move the number of megabytes."""
        self._bytes += size
        self._bar.update(self._task, megabytes=self._bytes / 1e6)  # type: ignore[attr-defined]

    def finished(self, what: str) -> None:
        """Move the bar."""
        self._bar.update(self._task, advance=1, description=what[:40])  # type: ignore[attr-defined]
