"""A build as objects of the JSON log (docs/reference.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgbuild.engine.step_text import stage_of

if TYPE_CHECKING:
    from imgbuild.engine.board import Board
    from imgbuild.engine.progress import BuildEvent
    from imgbuild.engine.row import Row
    from imgbuild.json_log import JsonLog

#: How often there is an object about all images, in seconds.
PROGRESS_SECONDS = 15.0


class JsonLines:
    """Writes an object for each step that begins or ends, each new state, and all together."""

    def __init__(self, board: Board, log: JsonLog, now: float) -> None:
        self._board = board
        self._log = log
        self._said = now
        self._states: dict[str, str] = {}

    def event(self, event: BuildEvent, row: Row, now: float) -> None:
        """Tell of a step; a step that images share is told for each of them."""
        if not event.internal or event.state == "failed":
            self._log.tell(
                "step",
                image=row.image,
                step=event.step,
                stage=stage_of(event.step) or None,
                state=event.state,
                seconds=None if event.state == "running" else round(event.elapsed, 3),
                bytes=_moved(row, event.number),
                error=event.error or None,
            )
        if self._states.get(row.image, "waiting") != row.state:
            self._image(row, now, error=event.error or None)

    def note(self, row: Row, now: float, *, changed: bool, error: str | None = None) -> None:
        """Tell what is done outside a build."""
        if changed or row.text or error:
            self._image(row, now, error=error)

    def beat(self, fraction: float, left: float | None, now: float) -> None:
        """Tell of all images together, every some seconds."""
        if now - self._said < PROGRESS_SECONDS:
            return
        self._said = now
        counts = self._board.counts()
        self._log.tell(
            "progress",
            done=self._board.done,
            images=len(self._board.busy),
            building=counts["building"] + counts["exporting"],
            testing=counts["testing"],
            percent=round(fraction * 100, 1),
            seconds=round(now - (now if self._board.begun is None else self._board.begun), 1),
            seconds_left=None if left is None else round(left),
        )

    def summary(self, now: float) -> None:
        """Tell how it ended."""
        counts = self._board.counts()
        begun = self._board.begun
        self._log.tell(
            "summary",
            images=len(self._board.rows),
            named=counts["named"],
            up_to_date=counts["up to date"],
            failed=counts["failed"],
            seconds=0.0 if begun is None else round(now - begun, 1),
        )

    def _image(self, row: Row, now: float, error: str | None) -> None:
        self._states[row.image] = row.state
        elapsed = row.build_seconds if row.state == "built" else row.elapsed(now)
        self._log.tell(
            "image",
            image=row.image,
            state=row.state,
            text=row.text or None,
            seconds=None if elapsed is None else round(elapsed, 1),
            bytes=sum(one.current for one in row.moved.values()) or None,
            error=error,
        )


def _moved(row: Row, number: int) -> int | None:
    return sum(one.current for one in row.moved.values() if one.number == number) or None
