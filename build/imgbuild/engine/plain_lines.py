"""A build in plain lines, for logs: each step of a single image, the states of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgbuild.engine.step_text import about, clock_time, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from imgbuild.engine.board import Board
    from imgbuild.engine.progress import BuildEvent
    from imgbuild.engine.row import Row

#: Of many images, only steps that took longer are told, in seconds.
LONG_SECONDS = 10.0
#: After so many seconds without a line there is one that says how things stand.
QUIET_SECONDS = 60.0
_STATES = {"building", "built", "failed", "cancelled"}


class PlainLines:
    """Writes lines. Whatever is said twice in a build is written once."""

    def __init__(self, board: Board, write: Callable[[str], None], now: float) -> None:
        self._board = board
        self._write = write
        self._said = now
        self._told: set[tuple[str, ...]] = set()
        self._states: dict[str, str] = {}

    def event(self, event: BuildEvent, row: Row, now: float) -> None:
        """Tell of a step that began or ended, as far as that is worth a line."""
        if event.internal and event.state != "failed":
            return
        if len(self._board.busy) == 1:
            self._once(row.image, _column(event), shortened(event.step), now, event.state)
            return
        if event.state == "done" and event.elapsed >= LONG_SECONDS:
            self._long(event, now)
        if row.state in _STATES and self._states.get(row.image) != row.state:
            self._states[row.image] = row.state
            self._line(row.image, row.state, self._of_state(event, row), now)

    def note(self, row: Row, now: float, *, changed: bool, error: str | None = None) -> None:
        """Tell what is done outside a build; of many images only news.

        Errors are said at the end of the program.
        """
        del error
        if changed or len(self._board.busy) == 1 or row.text.startswith("FAILED"):
            self._states[row.image] = row.state
            self._line(row.image, row.state, row.text, now)

    def beat(self, left: float | None, now: float) -> None:
        """Say how things stand, if nothing was said for a while."""
        if now - self._said < QUIET_SECONDS:
            return
        self._said = now
        self._write(standing(self._board, left, now))

    def _of_state(self, event: BuildEvent, row: Row) -> str:
        if row.state == "built" and row.build_seconds is not None:
            return f"in {clock_time(row.build_seconds)}"
        if row.state == "built":
            return "from the cache"
        return shortened(event.step) if row.state == "failed" else ""

    def _long(self, event: BuildEvent, now: float) -> None:
        """Tell of a long step, of one of those that share it."""
        image, *others = self._board.sharers(event)
        more = f" (and for {len(others)} more)" if others else ""
        self._once(image, clock_time(event.elapsed), shortened(event.step) + more, now, "done")

    def _once(self, image: str, column: str, text: str, now: float, state: str) -> None:
        if (image, text, state) not in self._told:
            self._told.add((image, text, state))
            self._line(image, column, text, now)

    def _line(self, image: str, column: str, text: str, now: float) -> None:
        self._said = now
        width = max(len(image) for image in self._board.rows)
        self._write(f"{image:<{width}}  {column:>10}  {text}".rstrip())


def standing(board: Board, left: float | None, now: float) -> str:
    """Return ``12 of 34 done, 3 building, longest: horovod 2/2 RUN make of tf-2.2-cpu 1m40s``."""
    counts = board.counts()
    parts = [f"{board.done} of {len(board.busy)} done"]
    for state in ("building", "exporting", "testing", "waiting", "failed"):
        parts += [f"{counts[state]} {state}"] if counts[state] else []
    if longest := board.longest():
        row, step = longest
        seconds = clock_time(now - (now if step.since is None else step.since))
        parts.append(f"longest: {shortened(step.text, 40)} of {row.image} {seconds}")
    parts += [f"about {about(left)} left"] if left is not None else []
    return ", ".join(parts)


def _column(event: BuildEvent) -> str:
    """Return how long a step took, or how it ended."""
    if event.state == "done":
        return clock_time(event.elapsed)
    return "starts" if event.state == "running" else event.state
