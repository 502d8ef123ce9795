"""Show the events of a build: a live table on a terminal, else plain lines or JSON objects."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

from imgbuild.build.lines import JsonLines, PlainLines, clock_time, shortened
from imgbuild.build.status import BuildStatus
from imgbuild.engine.progress import BuildEvent, ImageState
from imgbuild.json_log import JsonLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from imgbuild.build.status import ImageStatus
    from imgbuild.engine.progress import Event

#: How often the writers of lines look whether a summary is due, in seconds.
_BEAT_SECONDS = 1.0
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
#: Which images are shown first where not all can be: what needs attention, then what moves.
_URGENCY = {"failed": 0, "exporting": 1, "building": 1, "testing": 1, "built": 2, "cancelled": 3}
_NARROW = 100
_BAR_WIDTH = 30
_FEW_BYTES = 1_000_000


class BuildDisplay:
    """The listener of a build; a context manager. Nothing is shown before the first event."""

    def __init__(
        self,
        images: Sequence[str],
        stream: TextIO | JsonLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._status = BuildStatus.of(images)
        self._stream = stream or sys.stderr
        self._clock = clock
        self._lock = threading.RLock()  # images are tested side by side, and a thread redraws
        self._open = False
        self._lines: PlainLines | JsonLines | None = None
        self._live: Live | None = None
        self._over = threading.Event()
        self._beats: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._open = True
        if isinstance(self._stream, JsonLog):
            self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._over.set()
        if self._beats:
            self._beats.join()
        if self._live:
            self._live.stop()
            self._live = None
        if isinstance(self._lines, JsonLines):
            self._lines.summary(self._clock())

    def on_event(self, event: Event) -> None:
        """Show an event; may be called from any thread."""
        with self._lock:
            now = self._clock()
            image = self._status.take(event, now)
            if image is None or not isinstance(event, BuildEvent | ImageState):
                return
            if image.action == "nothing" and not isinstance(self._stream, JsonLog):
                return
            self._begin()
            if self._lines:
                self._lines.write(event, image, now)

    def beat(self) -> None:
        """Write a line about all images, if one is due."""
        with self._lock:
            if self._lines:
                self._lines.beat(self._clock())

    def _begin(self) -> None:
        """Begin to draw or to write."""
        if not self._open or self._lines or self._live:
            return
        if isinstance(self._stream, JsonLog):
            self._lines = JsonLines(self._status, self._stream, self._clock())
        elif self._stream.isatty() and not on_ci(os.environ):
            self._live = self._drawn(self._stream)
            self._live.start()
            return
        else:
            self._lines = PlainLines(self._status, self._stream, self._clock())
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            self.beat()

    def _drawn(self, stream: TextIO) -> Live:
        from rich.console import Console  # noqa: PLC0415  # rich is slow to import
        from rich.live import Live  # noqa: PLC0415

        console = Console(file=stream, highlight=False)
        return Live(
            console=console,
            get_renderable=lambda: self._picture(console.size.width, console.size.height),
            refresh_per_second=4,
        )

    def _picture(self, width: int, height: int) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415

        with self._lock:
            now = self._clock()
            rows = image_table(self._status, width, max(2, height - 2), now)
            if len(self._status.images) == 1:
                return rows
            return Group(rows, progress_bar(self._status, width, now))


def on_ci(environ: Mapping[str, str]) -> bool:
    """Return whether this is CI, where a live table is of no use even on a terminal."""
    return environ.get("CI", "").lower() not in {"", "0", "false"}


def image_table(status: BuildStatus, width: int, height: int, now: float) -> Table:
    """Return the images that fit in ``height`` lines; a last line sums up the others."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown, hidden = _fitting([*status.images.values()], height)
    cells = [_cells(one, now) for one in shown]
    grid = Table.grid(padding=(0, 1 if width < _NARROW else 2, 0, 0), expand=True)
    used = [number for number in range(5) if any(cell[number] for cell in cells)]
    for number in used:
        grid.add_column(no_wrap=True, justify="right" if number in {2, 3, 4} else "left")
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for one, cell in zip(shown, cells, strict=True):
        style = _STYLES.get(one.state, "")
        texts = [Text(cell[number], style=style if number == 1 else "") for number in used]
        grid.add_row(*texts, Text(shortened(one.step)))
    if hidden:
        grid.add_row(Text(f"and {len(hidden)} more"), Text(), *_rest(hidden, len(used) - 1))
    return grid


def progress_bar(status: BuildStatus, width: int, now: float) -> Table:
    """Return the line below the images: a bar, images and steps done of all, elapsed time."""
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(100, status.fraction * 100, width=min(_BAR_WIDTH, max(10, width - 55)))
    grid.add_row(bar, Text(overall_text(status, now), no_wrap=True))
    return grid


def overall_text(status: BuildStatus, now: float) -> str:
    """Return ``12 of 34 images  310 of 640 steps  3m12s``."""
    done, steps = status.steps
    parts = [f"{status.done} of {len(status.busy)} images"]
    parts += [f"{done} of {steps} steps"] if steps else []
    parts += [] if status.begun is None else [clock_time(now - status.begun)]
    return "  ".join(parts)


def _fitting(
    images: Sequence[ImageStatus], height: int
) -> tuple[list[ImageStatus], list[ImageStatus]]:
    if len(images) <= height:
        return [*images], []
    urgent = sorted(images, key=lambda one: (_URGENCY.get(one.state, 4), one.state != "waiting"))
    first = {one.image for one in urgent[: max(1, height - 1)]}
    shown = [one for one in images if one.image in first]
    return shown, [one for one in images if one.image not in first]


def _rest(hidden: Sequence[ImageStatus], columns: int) -> list[Text]:
    """Return the cells of the last line, the last of them: how many are in which state."""
    from rich.text import Text  # noqa: PLC0415

    states = dict.fromkeys(one.state for one in hidden)
    counts = [f"{sum(one.state == state for one in hidden)} {state}" for state in states]
    return [*(Text() for _ in range(columns - 1)), Text(", ".join(counts), style="dim")]


def _cells(one: ImageStatus, now: float) -> tuple[str, str, str, str, str]:
    elapsed, fraction = one.elapsed(now), one.fraction
    return (
        one.image,
        one.state,
        "" if elapsed is None else clock_time(elapsed),
        "" if fraction is None or one.action != "build" else f"{int(fraction * 100)}%",
        moved_text(*one.bytes),
    )


def moved_text(current: int, total: int) -> str:
    """Return bytes that have moved, of how many if that is known: ``12/40 MB``; "" for few."""
    if max(current, total) < _FEW_BYTES:
        return ""
    unit, factor = ("GB", 1e9) if max(current, total) >= 10**9 else ("MB", 1e6)
    digits = 1 if unit == "GB" else 0
    of = f"/{total / factor:.{digits}f}" if total > current else ""
    return f"{current / factor:.{digits}f}{of} {unit}"
