"""What a build has learnt from earlier ones, and leaves to later ones."""

import os
from pathlib import Path

from imgbuild.engine.board import Board
from imgbuild.engine.estimate import Countdown, prospect, step_work, suites_key, suites_of
from imgbuild.engine.learnt import Learnt, load_learnt, save_learnt, step_key
from imgbuild.engine.progress import BuildEvent, is_export
from imgbuild.engine.row import Row
from imgbuild.engine.schedule import finish
from imgbuild.engine.workload import Workload

#: Suites that take less were not run, since their results were known; nor was such an image built.
_TELLING_WORK = 1.0
#: How often the future is played, in seconds: some milliseconds each time for a whole matrix.
_LOOK_SECONDS = 2.0
#: What of a plan is known to take how long: not a push, which is the network's business.
_FORESEEN = {"build", "test", "name"}
#: How much finished work it takes until this build's own pace counts as much as the earlier ones'.
_PACE_WORK = 60.0


class Forecast:
    """Follows a `Board`. ``path`` is the file of `imgbuild.engine.learnt`; ``None`` for none."""

    def __init__(self, path: Path | None, processors: int | None = None) -> None:
        self._path = path
        self._load = Workload(processors or len(os.sched_getaffinity(0)))
        self._learnt: Learnt | None = None
        self._lessons: dict[str, float] = {}
        self._countdown = Countdown()
        self._pace = [_PACE_WORK, _PACE_WORK]
        self._at: float | None = None
        self._end: float | None = None
        self._left = 0.0

    def event(self, event: BuildEvent, row: Row, board: Board, now: float) -> None:
        """Learn from a step that began or ended."""
        self._follow(board, now)
        if event.state == "done" and not event.internal:
            self._learn_step(event, board)
            if is_export(event.step):
                self._learn_image(row, board)

    def note(self, row: Row, board: Board, now: float, *, tested: bool) -> None:
        """Learn from what was done outside a build; ``tested``: its suites have just ended."""
        self._follow(board, now)
        work = self._load.done.get(suites_of(row), 0.0)
        if tested and work >= _TELLING_WORK:
            self._lessons[suites_key(row)] = work
            self._lessons["most-suites"] = self._load.most_suites
            self._lessons["together"] = float(self._load.together)

    def fraction(self, board: Board, now: float) -> float:
        """Return how much of all is done, from 0 to 1: by work, where that is known."""
        self._look(board, now)
        return board.fraction(None if self._end is None else (self._load.total, self._left))

    def seconds(self, board: Board, now: float) -> float | None:
        """Return how long it will still take, in seconds, or ``None`` if too little is known."""
        self._look(board, now)
        return self._countdown.shown(None if self._end is None else self._end - now, now)

    def save(self) -> None:
        """Leave what was learnt to later builds."""
        if self._path:
            save_learnt(self._path, self._lessons)

    def _look(self, board: Board, now: float) -> None:
        """Play the future, if that was not done just now."""
        if self._at is not None and now - self._at < _LOOK_SECONDS:
            return
        self._at = now
        self._load.charge(now)
        if not {row.to_do for row in board.busy} <= _FORESEEN:
            self._end, self._left = None, 0.0
            return
        known = self._known()
        together = self._load.together or (known.expected("together") or 0.0) >= 0.5
        tasks = prospect(board, self._load, known, together=together).complete()
        if tasks is None:
            self._end, self._left = None, 0.0
            return
        at_a_time = max(self._load.most_suites, round(known.expected("most-suites") or 1))
        pace = self._pace[0] / self._pace[1]
        self._end = now + pace * finish(tasks, self._load.processors, at_a_time)
        self._left = pace * sum(task.work for task in tasks.values())

    def _follow(self, board: Board, now: float) -> None:
        tested = [suites_of(row) for row in board.busy if row.state == "testing"]
        self._load.run(board.running, tested, now)

    def _learn_step(self, event: BuildEvent, board: Board) -> None:
        work = self._load.done.get((event.number, event.step))
        sharers = board.sharers(event)
        if work is None or step_key(event.step) in self._lessons:
            return
        if expected := step_work(event.step, sharers, self._known()):
            self._pace = [self._pace[0] + work, self._pace[1] + expected]
        self._lessons[step_key(event.step)] = work
        if len(sharers) == 1:
            self._lessons[step_key(event.step, sharers[0])] = work

    def _learn_image(self, row: Row, board: Board) -> None:
        shares = [
            self._load.done.get((step.number, step.text), 0.0)
            / max(1, sum(step.number in other.steps for other in board.rows.values()))
            for step in row.steps.values()
        ]
        if sum(shares) >= _TELLING_WORK:
            self._lessons[f"image:{row.image}"] = sum(shares)

    def _known(self) -> Learnt:
        if self._learnt is None:
            self._learnt = load_learnt(self._path) if self._path else Learnt()
        return self._learnt
