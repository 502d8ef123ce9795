"""What is seen while images are built and tested.

On a terminal: a line an image and a bar for all, redrawn. Elsewhere, and on CI: plain lines, few
for many images. With ``--log-format json``: objects.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

from imgbuild.engine.board import Board
from imgbuild.engine.progress import BuildEvent
from imgbuild.engine.row import FINAL
from imgbuild.json_log import JsonLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from rich.console import RenderableType
    from rich.live import Live

    from imgbuild.engine.forecast import Forecast
    from imgbuild.engine.json_lines import JsonLines
    from imgbuild.engine.plain_lines import PlainLines
    from imgbuild.engine.progress import Event

#: The file of earlier durations, in the state folder.
LEARNT = "durations.json"
#: How often plain lines look whether it is time to say something, in seconds.
_BEAT_SECONDS = 1.0


class BuildDisplay:
    """Shows events; a context manager. ``event`` is what `run_bake` wants as ``events``.

    Nothing is shown, and no thread started, before the first event. ``learnt`` is the file of
    earlier durations; without it there is no estimate.
    """

    def __init__(
        self,
        images: Sequence[str],
        stream: TextIO | JsonLog | None = None,
        clock: Callable[[], float] = time.monotonic,
        learnt: Path | None = None,
    ) -> None:
        self.board = Board.of(images)
        self._stream = stream or sys.stderr
        self._clock = clock
        self._learnt = learnt
        self._forecast: Forecast | None = None
        self._lock = threading.RLock()  # images are tested side by side, and a thread redraws
        self._open = False
        self._plain: PlainLines | None = None
        self._json: JsonLines | None = None
        self._live: Live | None = None
        self._over = threading.Event()
        self._beats: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._open = True
        if isinstance(self._stream, JsonLog):
            self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        self._over.set()
        if self._beats:
            self._beats.join()
        if self._live:
            self._live.stop()
            self._live = None
        if self._json:
            self._json.summary(self._clock())
        if self._forecast:
            self._forecast.save()

    def expect(self, to_do: Mapping[str, str], *, tests: bool = True) -> None:
        """Hear the plan: ``build``, ``test``, ``name`` or ``nothing`` for each image."""
        with self._lock:
            self.board.expect(to_do, self._clock(), tests=tests)

    def event(self, event: Event) -> None:
        """Show a step of a build. Housekeeping steps are shown only if they fail."""
        with self._lock:
            now = self._clock()
            row = self.board.event(event, now)
            if row is None or not isinstance(event, BuildEvent):
                return
            self._begin().event(event, row, self.board, now)
            if teller := self._plain or self._json:
                teller.event(event, row, now)

    def note(self, image: str, state: str, text: str = "", *, ended: bool = False) -> None:
        """Show what an image is doing outside a build, or how it ended: its clock stands then."""
        self._note(image, state, text, None, ended=ended)

    def _note(self, image: str, state: str, text: str, error: str | None, *, ended: bool) -> None:
        with self._lock:
            forecast = self._begin()
            now = self._clock()
            before = self.board.rows[image].state if image in self.board.rows else ""
            row = self.board.note(image, state, text, now, ended=ended)
            forecast.note(row, self.board, now, tested=ended and before == "testing")
            if teller := self._plain or self._json:
                teller.note(row, now, changed=state != before, error=error)

    def step(self, image: str, text: str) -> None:
        """Show how far an image has come in what it is doing: on a terminal only."""
        with self._lock:
            if row := self.board.rows.get(image):
                row.text = text

    def finished(self, image: str, state: str, error: str | None = None) -> None:
        """Show what became of an image: ``named``, ``failed``, ``cancelled``, ``up to date``."""
        with self._lock:
            row = self.board.rows.get(image)
            if row is None or not (row.state == state and row.final):
                self._note(image, state, "", error, ended=state in FINAL)
            elif self._json:
                self._json.note(row, self._clock(), changed=True, error=error)

    def seconds(self, image: str) -> float | None:
        """Return how long an image was built: from its first step that was not cached to its end.

        ``None`` if it was not built here, or came from the cache as a whole.
        """
        with self._lock:
            row = self.board.rows.get(image)
            return row.build_seconds if row else None

    def _begin(self) -> Forecast:
        """Start showing, when there is something to show."""
        if self._open and not (self._plain or self._json or self._live):
            self._choose()
        return self._foreseen()

    def _foreseen(self) -> Forecast:
        """Return the forecast, which is imported when it is first needed."""
        from imgbuild.engine.forecast import Forecast  # noqa: PLC0415

        if self._forecast is None:
            self._forecast = Forecast(self._learnt)
        return self._forecast

    def _choose(self) -> None:
        """Begin to draw, or to write: objects, or lines where nobody watches."""
        from imgbuild.engine.json_lines import JsonLines  # noqa: PLC0415
        from imgbuild.engine.plain_lines import PlainLines  # noqa: PLC0415

        if isinstance(self._stream, JsonLog):
            self._json = JsonLines(self.board, self._stream, self._clock())
        elif self._stream.isatty() and not on_ci(os.environ):
            self._live = self._drawn(self._stream)
            self._live.start()
            return
        else:
            self._plain = PlainLines(self.board, self._print, self._clock())
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            self.beat()

    def beat(self) -> None:
        """Say how things stand, if it is time to."""
        with self._lock:
            now = self._clock()
            forecast = self._foreseen()
            left = forecast.seconds(self.board, now)
            if self._plain:
                self._plain.beat(left, now)
            if self._json:
                self._json.beat(forecast.fraction(self.board, now), left, now)

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

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

        from imgbuild.engine.live_table import bar, table  # noqa: PLC0415

        with self._lock:
            now = self._clock()
            forecast = self._foreseen()
            fraction = forecast.fraction(self.board, now)
            left = forecast.seconds(self.board, now)
            rows = table(self.board, width, max(2, height - 2), now)
            if len(self.board.rows) == 1:
                return rows
            return Group(rows, bar(self.board, fraction, left, width, now))


def on_ci(environ: Mapping[str, str]) -> bool:
    """Return whether nobody watches although there may be a terminal: ``CI`` is set."""
    return environ.get("CI", "").lower() not in {"", "0", "false"}
