"""What a person sees while images are built and tested.

On a terminal: one line an image, redrawn. Elsewhere: a plain line when a step starts or ends.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TextIO

from imgbuild.engine.progress import BuildEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from rich.live import Live
    from rich.table import Table

    from imgbuild.engine.progress import Event

STEP_WIDTH = 72
_OPTIONS = re.compile(r"\b(RUN|COPY|ADD)(?:\s+--\S+)+")
_HERE_DOCUMENT = re.compile(r"\s*<<'?\w+'?(?: \(.*\))?$")
#: What a row shows for its latest event.
_WORDS = {"running": "building", "failed": "failed", "cancelled": "cancelled"}
#: The states in which an image is done with, and its clock stands.
_ENDS = {"built", "failed", "cancelled"}


@dataclass
class Row:
    """One image: what it is doing, and the second since when."""

    state: str = "waiting"
    step: str = ""
    since: float | None = None
    until: float | None = None
    #: The number of each step that runs now; BuildKit runs several of one image side by side.
    running: tuple[tuple[int, str], ...] = ()

    def take(self, event: BuildEvent) -> None:
        """Take in an event of this image."""
        others = tuple(one for one in self.running if one[0] != event.number)
        active = event.state == "running"
        self.running = (*others, (event.number, event.step)) if active else others
        if self.state != "failed":
            built = event.state == "done" and event.step.startswith("exporting to ")
            self.state = "built" if built else _WORDS.get(event.state, self.state)
        if event.state == "failed":
            self.step = event.step
        elif self.state != "failed":
            self.step = self.running[-1][1] if self.running else self.step

    def elapsed(self, now: float) -> str:
        """Return for how long the image has been, or was, at work."""
        if self.since is None:
            return ""
        return clock_time((now if self.until is None else self.until) - self.since)


class BuildDisplay:
    """Shows events; a context manager. ``event`` is what `run_bake` wants as ``events``."""

    def __init__(
        self,
        images: Sequence[str],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rows = {image: Row() for image in images}
        self._stream = stream or sys.stderr
        self._clock = clock
        self._width = max((len(image) for image in images), default=0)
        self._live: Live | None = None
        self._told: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._live = self._opened()
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def event(self, event: Event) -> None:
        """Show a step of a build. Housekeeping steps are shown only if they fail."""
        if not isinstance(event, BuildEvent):
            return
        row = self.rows.get(event.target or "")
        if row is None or event.target is None or (event.internal and event.state != "failed"):
            return
        now = self._clock()
        row.since = now if row.since is None else row.since
        row.take(event)
        row.until = now if row.state in _ENDS else None
        if self._live is None:
            self._tell_once(event.target, event)

    def note(self, image: str, state: str, text: str = "", *, ended: bool = False) -> None:
        """Show what an image is doing outside a build, or how it ended: its clock stands then."""
        row = self.rows.setdefault(image, Row())
        now = self._clock()
        row.state, row.step, row.running, row.until = state, text, (), now if ended else None
        row.since = now if row.since is None else row.since
        if self._live is None:
            self._print(image, state, text)

    def step(self, image: str, text: str) -> None:
        """Show how far an image has come in what it is doing: on a terminal only."""
        if row := self.rows.get(image):
            row.step = text

    def _tell_once(self, image: str, event: BuildEvent) -> None:
        """Print an event, unless the same was said: steps can be looked up twice."""
        key = (image, event.step, event.state)
        if key not in self._told:
            self._told.add(key)
            self._print(image, _column(event), shortened(event.step))

    def _print(self, image: str, column: str, text: str) -> None:
        line = f"{image:<{self._width}}  {column:>9}  {text}".rstrip()
        with self._lock:  # images are tested side by side
            print(line, file=self._stream, flush=True)

    def _opened(self) -> Live:
        from rich.console import Console  # noqa: PLC0415  # rich is slow to import
        from rich.live import Live  # noqa: PLC0415

        console = Console(file=self._stream)
        return Live(console=console, get_renderable=self._table, refresh_per_second=4)

    def _table(self) -> Table:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table.grid(padding=(0, 2), expand=False)
        for image, row in self.rows.items():
            cells = (image, row.elapsed(self._clock()), row.state, shortened(row.step))
            table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
        return table


def shortened(step: str, width: int = STEP_WIDTH) -> str:
    """Return a step for people: ``[horovod 3/4] RUN make …`` as ``horovod 3/4 RUN make …``.

    Options and here-documents are left out: they say how a step runs, not what it does.
    """
    bare = step.replace("[", "", 1).replace("]", "", 1) if step.startswith("[") else step
    bare = _HERE_DOCUMENT.sub("", _OPTIONS.sub(r"\1", bare))
    return bare if len(bare) <= width else bare[: width - 1] + "…"


def clock_time(seconds: float) -> str:
    """Return a duration for people: ``12.3s``, ``4m05s``, ``1h02m``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def _column(event: BuildEvent) -> str:
    """Return the middle column of a plain line: how long a step took, or how it ended."""
    if event.state == "done":
        return clock_time(event.elapsed)
    return "starts" if event.state == "running" else event.state
