"""Show the events of a build: a live table on a terminal, else plain lines or JSON objects."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Self, TextIO

from imgbuild.build.lines import JsonLines, PlainLines, clock_time, shortened
from imgbuild.build.status import BuildStatus
from imgbuild.engine.progress import BuildEvent, ImageState
from imgbuild.json_log import JsonLog
from imgbuild.text import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

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
_URGENCY = ("failed", "exporting", "building", "testing", "built", "cancelled")
_BAR_WIDTH = 25


class BuildDisplay:
    """The listener of a build; a context manager. Nothing is shown before the first event."""

    def __init__(
        self,
        images: Sequence[str],
        stream: TextIO | JsonLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._status = BuildStatus(images)
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
        # On CI a live table is of no use even on a terminal.
        elif self._stream.isatty() and os.environ.get("CI", "").lower() in {"", "0", "false"}:
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
            get_renderable=lambda: self._picture(console.size.height),
            refresh_per_second=4,
        )

    def _picture(self, height: int) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415

        with self._lock:
            now = self._clock()
            rows = image_table(self._status, max(2, height - 2), now)
            alone = len(self._status.images) == 1
            return rows if alone else Group(rows, progress_bar(self._status, now))


def image_table(status: BuildStatus, height: int, now: float) -> Table:
    """Return the images that fit in ``height`` lines; a last line sums up the others.

    Each line has the state, the elapsed time, the bytes moved and the step.
    """
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    images = [*status.images.values()]
    order = {state: number for number, state in enumerate((*_URGENCY, "waiting"))}
    urgent = sorted(images, key=lambda one: order.get(one.state, len(order)))
    hidden = {one.image: one.state for one in urgent[height - 1 :] if len(images) > height}
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    for justify in ("left", "left", "right", "right"):
        grid.add_column(no_wrap=True, justify=justify)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for one in images:
        if one.image in hidden:
            continue
        elapsed = one.elapsed(now)
        grid.add_row(
            one.image,
            Text(one.state, style=_STYLES.get(one.state, "")),
            "" if elapsed is None else clock_time(elapsed),
            size_text(one.bytes) if one.bytes else "",
            Text(shortened(one.step)),
        )
    if hidden:
        rest = ", ".join(f"{number} {state}" for state, number in Counter(hidden.values()).items())
        grid.add_row(f"and {len(hidden)} more", "", "", "", Text(rest, style="dim"))
    return grid


def progress_bar(status: BuildStatus, now: float) -> Table:
    """Return a bar, and ``12 of 34 images  310 of 640 steps  3m12s``."""
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    done, steps = status.steps
    images = f"{status.done} of {len(status.busy)} images"
    text = "  ".join((images, f"{done} of {steps} steps", clock_time(status.elapsed(now))))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(ProgressBar(100, status.fraction * 100, width=_BAR_WIDTH), Text(text))
    return grid
