"""Show the events of a build: a live table on a terminal, else plain lines."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

from imgbuild.build.status import BuildStatus, ImageStatus
from imgbuild.engine.progress import BuildEvent
from imgbuild.events import ImageState, State
from imgbuild.text import clock_time, printable, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Group
    from rich.live import Live

    from imgbuild.events import Event

#: How often the table is drawn, and lines are looked after, in seconds.
BEAT_SECONDS = 0.25
#: Of many images, only steps that took longer get a line, in seconds.
LONG_SECONDS = 10.0
#: After so many seconds without a line, one sums up all images.
QUIET_SECONDS = 60.0
STEP_WIDTH, BAR_WIDTH = 72, 25
#: The colour of a state; what is at work is cyan.
_STYLES = {
    State.WAITING: "dim",
    State.UP_TO_DATE: "dim",
    State.PUBLISHED: "green",
    State.PASSED: "green",
    State.TAGGED: "green",
    State.FAILED: "bold red",
    State.TIMED_OUT: "yellow",
    State.CANCELLED: "yellow",
}
#: Which images are shown where not all can be: what needs attention, then what moves.
_URGENCY = (
    State.FAILED,
    State.TIMED_OUT,
    State.EXPORTING,
    State.BUILDING,
    State.TESTING,
    State.BUILT,
    State.CANCELLED,
    State.WAITING,
)
_OPTIONS = re.compile(r"\b(RUN|COPY|ADD)(?:\s+--\S+)+")
_HERE_DOCUMENT = re.compile(r"\s*<<'?\w+'?(?: \(.*\))?$")


class BuildDisplay:
    """The listener of a build; a context manager. Nothing is shown before the first event."""

    def __init__(
        self,
        images: Sequence[str],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._now = self._latest = clock()
        self._status = BuildStatus(images, self._now)
        self._states: dict[str, State] = {}
        self._written: set[tuple[str | None, int, str, str]] = set()
        self._live: Live | None = None
        self._lock = threading.RLock()  # images are tested side by side, and a thread draws
        self._over = threading.Event()
        self._beats: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._beats:
            self._beats.join()
        if self._live:
            self.beat()
            self._live.stop()

    def on_event(self, event: Event) -> None:
        """Show an event; may be called from any thread."""
        with self._lock:
            self._now = self._clock()
            image = self._status.apply(event, self._now)
            if image is None or not isinstance(event, BuildEvent | ImageState):
                return
            changed = self._states.get(image.image, State.WAITING) != image.state
            self._states[image.image] = image.state
            if image.action != "nothing":
                self._begin()
                if not self._live:
                    self._write_lines(event, image, changed)

    def beat(self) -> None:
        """Draw the table anew, or write about all images if that is due."""
        with self._lock:
            self._now = self._clock()
            if self._live:
                height = self._live.console.size.height
                self._live.update(picture(self._status, height, self._now), refresh=True)
            elif self._beats and self._now - self._latest >= QUIET_SECONDS:
                self._print(_standing(self._status, self._now))

    def _begin(self) -> None:
        """Begin to draw or to write, with the first event that is shown."""
        if self._beats:
            return
        # On CI a live table is of no use even on a terminal.
        on_ci = os.environ.get("CI", "").lower() not in {"", "0", "false"}
        if self._stream.isatty() and not on_ci:
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
        self, event: BuildEvent | ImageState, image: ImageStatus, changed: bool
    ) -> None:
        """Write each step of a single image; of many, their states and long steps."""
        alone = len(self._status.with_work) == 1
        if isinstance(event, ImageState):
            bad = event.text.startswith(("FAILED", "TIMED OUT"))
            if changed or (alone and event.text) or bad:
                self._line(image, event.state, event.text)
            return
        if alone or (event.state == "done" and event.elapsed >= LONG_SECONDS):
            self._step(image, event)
        if changed and not alone and image.state is not State.EXPORTING:
            took = clock_time(image.elapsed(self._now) or 0)
            texts = {State.BUILT: f"in {took}", State.FAILED: shortened(event.step)}
            self._line(image, image.state, texts.get(image.state, ""))

    def _step(self, image: ImageStatus, event: BuildEvent) -> None:
        """Write a step once, with the first of its images that tells of it."""
        key = (image.builder, event.number, event.step, event.state)
        if key not in self._written:
            self._written.add(key)
            words = {"running": "starts", "done": clock_time(event.elapsed)}
            others = self._status.sharers(event, image.builder) - 1
            more = f" (and for {others} more)" if others > 0 else ""
            self._line(image, words.get(event.state, event.state), shortened(event.step) + more)

    def _line(self, image: ImageStatus, column: str, text: str) -> None:
        width = max(map(len, self._status.images))
        where = f"{image.builder}  " if image.builder else ""
        self._print(f"{image.image:<{width}}  {where}{column:>10}  {text}".rstrip())

    def _print(self, line: str) -> None:
        self._latest = self._now
        print(printable(line), file=self._stream, flush=True)


def picture(status: BuildStatus, height: int, now: float) -> Group:
    """Return a line for each image, as far as ``height`` allows; of many, then one that sums up.

    Each line has the state, the elapsed time, the bytes moved and the step.
    """
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def line(*parts: str | tuple[str, str]) -> Text:
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")

    images = [*status.images.values()]
    order = {state: number for number, state in enumerate(_URGENCY)}
    urgent = sorted(images, key=lambda one: order.get(one.state, len(order)))
    shown = {one.image for one in urgent[: max(height - 2, 1)]}
    width = max(map(len, status.images))
    lines = []
    for one in (one for one in images if one.image in shown):
        elapsed, moved = one.elapsed(now), sum(one.moved.values())
        clock = "" if elapsed is None else clock_time(elapsed)
        where = f" {one.builder}" if one.builder else ""
        rest = f"{where} {clock:>6} {size_text(moved) if moved else '':>9} {shortened(one.step)}"
        state = (f"{one.state:<10}", _STYLES.get(one.state, "cyan"))
        lines.append(line(f"{one.image:<{width}} ", state, rest))
    if len(images) > 1:
        done = round(status.fraction * BAR_WIDTH)
        bar = ("━" * done, "green"), ("━" * (BAR_WIDTH - done), "dim")
        lines.append(line(*bar, f" {_standing(status, now)}"))
    return Group(*lines)


def _standing(status: BuildStatus, now: float) -> str:
    """Return ``12 of 34 done, 2 testing, 310 of 640 steps, 3m12s, longest: 2/2 RUN make of …``."""
    counts, (done, steps) = status.counts(), status.steps
    parts = [f"{status.done} of {len(status.with_work)} done"]
    for state in (State.BUILDING, State.EXPORTING, State.TESTING, State.WAITING, State.FAILED):
        parts += [f"{counts[state]} {state}"] if counts[state] else []
    parts += [f"{done} of {steps} steps"] if steps else []
    parts.append(clock_time(now - status.started))
    if longest := status.longest():
        image, step = longest
        running = clock_time(now - step.since)
        parts.append(f"longest: {shortened(step.text, 40)} of {image.image} {running}")
    return ", ".join(parts)


def shortened(step: str, width: int = STEP_WIDTH) -> str:
    """Return a step for people: ``[horovod 3/4] RUN make …`` as ``horovod 3/4 RUN make …``.

    Options and here-documents are left out: they say how a step runs, not what it does.
    """
    bare = step.replace("[", "", 1).replace("]", "", 1) if step.startswith("[") else step
    bare = printable(_HERE_DOCUMENT.sub("", _OPTIONS.sub(r"\1", bare)))
    return bare if len(bare) <= width else bare[: width - 1] + "…"
