"""Show the progress of images, as a live table on a terminal and as plain lines elsewhere."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO

from imgbuild.core.events import ImageState, Phase
from imgbuild.core.outcome import Outcome
from imgbuild.core.text import clock_time, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Group
    from rich.live import Live

    from imgbuild.engine.steps import Step

#: Seconds between two updates of the table.
BEAT_SECONDS = 0.25
#: With several images, only steps that take at least this many seconds get a line.
LONG_SECONDS = 10.0
#: Seconds without output before a line summarizes all images.
QUIET_SECONDS = 60.0
STEP_WIDTH, BAR_WIDTH = 72, 25
#: The colour of each state; all other states are cyan.
_STYLES = {
    Phase.WAITING: "dim",
    Outcome.UP_TO_DATE: "dim",
    Outcome.PUBLISHED: "green",
    Outcome.PASSED: "green",
    Outcome.TAGGED: "green",
    Outcome.FAILED: "bold red",
    Outcome.TIMED_OUT: "yellow",
    Outcome.CANCELLED: "yellow",
}
#: The order of images if the table does not fit: problems first, then running work.
_URGENCY = (
    Outcome.FAILED,
    Outcome.TIMED_OUT,
    Phase.BUILDING,
    Phase.TESTING,
    Phase.BUILT,
    Outcome.CANCELLED,
    Phase.WAITING,
)
_OPTIONS = re.compile(r"\b(RUN|COPY|ADD)(?:\s+--\S+)+")
_HERE_DOCUMENT = re.compile(r"\s*<<'?\w+'?(?: \(.*\))?$")


@dataclass
class ImageLine:
    """One image in the table.

    ``steps`` maps numbers to running steps. The clock runs from ``since``, the start of the work,
    to ``until``.
    """

    image: str
    state: Phase | Outcome = Phase.WAITING
    text: str = ""
    since: float | None = None
    until: float | None = None
    steps: dict[int, Step] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        """Whether the image needs, or needed, any work."""
        return self.state is not Outcome.UP_TO_DATE or self.since is not None

    @property
    def step(self) -> Step | None:
        """The step that has run longest; BuildKit runs several in parallel."""
        return next(iter(self.steps.values()), None)

    @property
    def detail(self) -> str:
        return shorten(self.step.name) if self.step else self.text

    def clock(self, now: float) -> str:
        """Return the elapsed time of the work on the image; empty before it begins."""
        if self.since is None:
            return ""
        return clock_time((now if self.until is None else self.until) - self.since)


class BuildDisplay:
    """Shows the states of images; a context manager. Nothing is shown before the first event."""

    def __init__(
        self,
        images: Sequence[str],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._started = self._latest = clock()
        self._lines = {image: ImageLine(image) for image in images}
        self._live: Live | None = None
        self._lock = threading.RLock()  # threads that build images and draw share the state
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

    def show_state(self, event: ImageState) -> None:
        """Show the state of an image; may be called from any thread."""
        with self._lock:
            line, now = self._lines[event.image], self._clock()
            changed = line.state is not event.state
            has_ended = isinstance(event.state, Outcome)
            # Ignore the time of setting a tag after the end.
            if not (has_ended and isinstance(line.state, Outcome)):
                line.until = now if has_ended else None
            line.state, line.text, line.steps = event.state, event.text, {}
            if not line.has_work:
                return
            line.since = now if line.since is None else line.since
            self._start()
            is_bad = event.text.startswith(("FAILED", "TIMED OUT"))
            is_news = changed or is_bad or (self._is_alone and event.text != "")
            if is_news and not event.quiet and not self._live:
                self._write(line, event.state, event.text)

    def show_step(self, image: str, step: Step) -> None:
        """Show a step that begins or ends; may be called from any thread."""
        with self._lock:
            line = self._lines.get(image)
            if line is None:  # the stage belongs to no image of this build
                return
            self._start()
            line.since = self._clock() if line.since is None else line.since
            line.steps.pop(step.number, None)
            if step.state == "running":
                line.steps[step.number] = step
            long = step.state == "failed" or step.elapsed >= LONG_SECONDS
            if not self._live and (long or self._is_alone):
                words = {"running": "starts", "done": clock_time(step.elapsed)}
                self._write(line, words.get(step.state, step.state), shorten(step.name))

    def beat(self) -> None:
        """Redraw the table, or print a summary line if one is due."""
        with self._lock:
            now = self._clock()
            if self._live:
                height = self._live.console.size.height
                self._live.update(self.picture(height), refresh=True)
            elif self._beats and now - self._latest >= QUIET_SECONDS:
                self._print(self._describe_state())

    def picture(self, height: int) -> Group:
        """Return one line per image with state, elapsed time and step, then a summary line.

        Only the most urgent images are shown if ``height`` is too small. A single image has no
        summary line.
        """
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        now, order = self._clock(), {state: number for number, state in enumerate(_URGENCY)}
        urgent = sorted(self._lines.values(), key=lambda line: order.get(line.state, len(order)))
        shown = {line.image for line in urgent[: max(height - 2, 1)]}
        width = max(map(len, self._lines))
        rows = [
            Text.assemble(
                f"{line.image:<{width}} ",
                (f"{line.state:<10}", _STYLES.get(line.state, "cyan")),
                f" {line.clock(now):>6} {line.detail}",
                no_wrap=True,
                overflow="ellipsis",
            )
            for line in self._lines.values()
            if line.image in shown
        ]
        if len(self._lines) > 1:
            done = round(self._done_count / max(len(self._lines_with_work), 1) * BAR_WIDTH)
            bar = ("━" * done, "green"), ("━" * (BAR_WIDTH - done), "dim")
            rows.append(Text.assemble(*bar, f" {self._describe_state()}", no_wrap=True))
        return Group(*rows)

    @property
    def _lines_with_work(self) -> list[ImageLine]:
        return [line for line in self._lines.values() if line.has_work]

    @property
    def _done_count(self) -> int:
        return sum(isinstance(line.state, Outcome) for line in self._lines_with_work)

    @property
    def _is_alone(self) -> bool:
        return len(self._lines_with_work) == 1

    def _start(self) -> None:
        """Start the output at the first event that is shown."""
        if self._beats:
            return
        # On CI, a live table is useless even on a terminal.
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

    def _write(self, line: ImageLine, column: str, text: str) -> None:
        width = max(map(len, self._lines))
        self._print(f"{line.image:<{width}}  {column:>10}  {text}".rstrip())

    def _print(self, line: str) -> None:
        self._latest = self._clock()
        print(printable(line), file=self._stream, flush=True)

    def _describe_state(self) -> str:
        """Return ``12 of 34 done, 2 building, 1 testing, 3m12s, longest: 2/2 RUN make of …``."""
        counts, now = Counter(line.state for line in self._lines.values()), self._clock()
        parts = [f"{self._done_count} of {len(self._lines_with_work)} done"]
        shown = (Phase.BUILDING, Phase.TESTING, Phase.WAITING, Outcome.FAILED)
        parts += [f"{counts[state]} {state}" for state in shown if counts[state]]
        parts.append(clock_time(now - self._started))
        longest: tuple[float, Step, ImageLine] | None = None
        for line in self._lines.values():
            for step in line.steps.values():
                if step.since is not None and (longest is None or step.since < longest[0]):
                    longest = step.since, step, line
        if longest:
            since, step, line = longest
            took = clock_time(max(0.0, now - since))
            parts.append(f"longest: {shorten(step.name, 40)} of {line.image} {took}")
        return ", ".join(parts)


def shorten(step: str, width: int = STEP_WIDTH) -> str:
    """Return a readable step: ``[horovod 3/4] RUN make …`` becomes ``horovod 3/4 RUN make …``.

    Options and here-documents are removed, because they do not say what the step does.
    """
    bare = step.replace("[", "", 1).replace("]", "", 1) if step.startswith("[") else step
    bare = printable(_HERE_DOCUMENT.sub("", _OPTIONS.sub(r"\1", bare)))
    return bare if len(bare) <= width else bare[: width - 1] + "…"
