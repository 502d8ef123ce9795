"""Show the events of a build: a live table on a terminal, else plain lines or JSON objects."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

from imgbuild.build.status import BuildStatus, ImageStatus
from imgbuild.engine.progress import BuildEvent, ImageState
from imgbuild.json_log import JsonLog
from imgbuild.text import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType
    from rich.live import Live

    from imgbuild.engine.progress import Event
    from imgbuild.json_log import Value

#: How often the table is drawn, and lines are looked after, in seconds.
BEAT_SECONDS = 0.25
#: Of many images, only steps that took longer get a line, in seconds.
LONG_SECONDS = 10.0
#: After so many seconds without a line, one sums up all images.
QUIET_SECONDS = 60.0
#: How often the JSON log has an object about all images, in seconds.
PROGRESS_SECONDS = 15.0
STEP_WIDTH = 72
#: The colour of a state; what is at work is cyan.
_STYLES = {
    "waiting": "dim",
    "up to date": "dim",
    "published": "green",
    "passed": "green",
    "named": "green",
    "failed": "bold red",
    "cancelled": "yellow",
}
#: Which images are shown where not all can be: what needs attention, then what moves.
_URGENCY = ("failed", "exporting", "building", "testing", "built", "cancelled", "waiting")
_STAGE = re.compile(r"\[(\S+)(?: \d+/\d+)?\] ")
_OPTIONS = re.compile(r"\b(RUN|COPY|ADD)(?:\s+--\S+)+")
_HERE_DOCUMENT = re.compile(r"\s*<<'?\w+'?(?: \(.*\))?$")


class BuildDisplay:
    """The listener of a build; a context manager. Nothing is shown before the first event."""

    def __init__(
        self,
        images: Sequence[str],
        stream: TextIO | JsonLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._status = BuildStatus(images, clock())
        self._stream = stream or sys.stderr
        self._clock = clock
        self._lock = threading.RLock()  # images are tested side by side, and a thread draws
        self._live: Live | None = None
        self._states: dict[str, str] = {}
        self._written: set[tuple[int, str, str]] = set()
        self._latest = clock()
        self._over = threading.Event()
        self._beats: threading.Thread | None = None

    def __enter__(self) -> Self:
        if isinstance(self._stream, JsonLog):
            self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._beats:
            self._beats.join()
        if self._live:
            self.beat()
            self._live.stop()
        if isinstance(self._stream, JsonLog):
            self._stream.emit("summary", **_summary(self._status, self._clock()))

    def on_event(self, event: Event) -> None:
        """Show an event; may be called from any thread."""
        with self._lock:
            now = self._clock()
            image = self._status.take(event, now)
            if image is None or not isinstance(event, BuildEvent | ImageState):
                return
            changed = self._states.get(image.image, "waiting") != image.state
            self._states[image.image] = image.state
            if isinstance(self._stream, JsonLog):
                self._write_objects(self._stream, event, image, changed, now)
            elif image.action != "nothing":
                self._begin()
                if self._live is None:
                    self._write_lines(event, image, changed, now)

    def beat(self) -> None:
        """Draw the table anew, or write about all images if that is due."""
        with self._lock:
            now = self._clock()
            if self._live:
                height = self._live.console.size.height
                self._live.update(picture(self._status, height, now), refresh=True)
            elif isinstance(self._stream, JsonLog):
                if now - self._latest >= PROGRESS_SECONDS:
                    self._latest = now
                    self._stream.emit("progress", **_progress(self._status, now))
            elif now - self._latest >= QUIET_SECONDS:
                self._print(_standing(self._status, now) + _longest(self._status, now), now)

    def _begin(self) -> None:
        """Begin to draw or to write, with the first event that is shown."""
        if self._beats:
            return
        # On CI a live table is of no use even on a terminal.
        on_ci = os.environ.get("CI", "").lower() not in {"", "0", "false"}
        if not isinstance(self._stream, JsonLog) and self._stream.isatty() and not on_ci:
            from rich.console import Console  # noqa: PLC0415  # rich is slow to import
            from rich.live import Live  # noqa: PLC0415

            console = Console(file=self._stream, highlight=False)
            self._live = Live(console=console, auto_refresh=False)
            self._live.start()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self.beat()

    def _write_lines(
        self, event: BuildEvent | ImageState, image: ImageStatus, changed: bool, now: float
    ) -> None:
        """Write each step of a single image; of many, their states and long steps."""
        alone = len(self._status.busy) == 1
        if isinstance(event, ImageState):
            if changed or (alone and event.text) or event.text.startswith("FAILED"):
                self._line(image, event.state, event.text, now)
            return
        if alone or (event.state == "done" and event.elapsed >= LONG_SECONDS):
            self._step(image, event, now)
        if alone or not changed:
            return
        if image.state == "built":
            self._line(image, "built", f"in {clock_time(image.elapsed(now) or 0)}", now)
        elif image.state in {"building", "failed", "cancelled"}:
            text = shortened(event.step) if image.state == "failed" else ""
            self._line(image, image.state, text, now)

    def _step(self, image: ImageStatus, event: BuildEvent, now: float) -> None:
        """Write a step once, with the first of its images that tells of it."""
        key = (event.number, event.step, event.state)
        if key not in self._written:
            self._written.add(key)
            words = {"running": "starts", "done": clock_time(event.elapsed)}
            others = self._status.sharers(event) - 1
            more = f" (and for {others} more)" if others > 0 else ""
            column = words.get(event.state, event.state)
            self._line(image, column, shortened(event.step) + more, now)

    def _line(self, image: ImageStatus, column: str, text: str, now: float) -> None:
        width = max(len(name) for name in self._status.images)
        self._print(f"{image.image:<{width}}  {column:>10}  {text}".rstrip(), now)

    def _print(self, line: str, now: float) -> None:
        self._latest = now
        print(line, file=self._stream, flush=True)

    def _write_objects(
        self,
        log: JsonLog,
        event: BuildEvent | ImageState,
        image: ImageStatus,
        changed: bool,
        now: float,
    ) -> None:
        """Write a step that begins or ends, for each image that shares it, and each new state."""
        error = event.error or None
        if isinstance(event, BuildEvent):
            stage = _STAGE.match(event.step)
            log.emit(
                "step",
                image=image.image,
                step=event.step,
                stage=stage[1] if stage else None,
                state=event.state,
                seconds=None if event.state == "running" else round(event.elapsed, 3),
                bytes=sum(n for (number, _), n in image.moved.items() if number == event.number)
                or None,
                error=error,
            )
        if changed or (isinstance(event, ImageState) and (event.text or error)):
            elapsed = image.elapsed(now)
            log.emit(
                "image",
                image=image.image,
                state=image.state,
                text=image.text or None,
                seconds=None if elapsed is None else round(elapsed, 1),
                bytes=sum(image.moved.values()) or None,
                error=error,
            )


def picture(status: BuildStatus, height: int, now: float) -> RenderableType:
    """Return a line for each image, as far as ``height`` allows; of many, then one that sums up.

    Each line has the state, the elapsed time, the bytes moved and the step.
    """
    from rich.console import Group  # noqa: PLC0415
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    images = [*status.images.values()]
    order = {state: number for number, state in enumerate(_URGENCY)}
    urgent = sorted(images, key=lambda one: order.get(one.state, len(order)))
    shown = {one.image for one in urgent[: max(height - 2, 1)]}
    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    for justify in ("left", "left", "right", "right"):
        table.add_column(no_wrap=True, justify=justify)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for one in images:
        if one.image in shown:
            elapsed, moved = one.elapsed(now), sum(one.moved.values())
            table.add_row(
                one.image,
                Text(one.state, style=_STYLES.get(one.state, "cyan")),
                "" if elapsed is None else clock_time(elapsed),
                size_text(moved) if moved else "",
                Text(shortened(one.step)),
            )
    if len(images) == 1:
        return table
    bar = Table.grid(padding=(0, 1, 0, 0))
    bar.add_column()
    bar.add_column(no_wrap=True, overflow="ellipsis")
    bar.add_row(ProgressBar(1.0, status.fraction, width=25), _standing(status, now))
    return Group(table, bar)


def _standing(status: BuildStatus, now: float) -> str:
    """Return ``12 of 34 done, 3 building, 310 of 640 steps, 3m12s``."""
    counts, (done, steps) = status.counts(), status.steps
    states = ("building", "exporting", "testing", "waiting", "failed")
    parts = [
        f"{status.done} of {len(status.busy)} done",
        *(f"{counts[state]} {state}" for state in states if counts[state]),
        *([f"{done} of {steps} steps"] if steps else []),
        clock_time(now - status.begun),
    ]
    return ", ".join(parts)


def _longest(status: BuildStatus, now: float) -> str:
    """Return ``, longest: horovod 2/2 RUN make of tf-2.2-cpu 1m40s``."""
    if not (longest := status.longest()):
        return ""
    image, step = longest
    running = clock_time(now - step.since)
    return f", longest: {shortened(step.text, 40)} of {image.image} {running}"


def _progress(status: BuildStatus, now: float) -> dict[str, Value]:
    counts = status.counts()
    return {
        "done": status.done,
        "images": len(status.busy),
        "building": counts["building"] + counts["exporting"],
        "testing": counts["testing"],
        "percent": round(status.fraction * 100, 1),
        "seconds": round(now - status.begun, 1),
    }


def _summary(status: BuildStatus, now: float) -> dict[str, Value]:
    counts = status.counts()
    return {
        "images": len(status.images),
        "named": counts["named"],
        "up_to_date": counts["up to date"],
        "failed": counts["failed"],
        "seconds": round(now - status.begun, 1),
    }


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
