"""How long a build will still take, by what earlier ones took; nothing rather than nonsense."""

import math
import statistics
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace

from imgbuild.engine.board import Board
from imgbuild.engine.learnt import Learnt, step_key, step_kind
from imgbuild.engine.progress import is_export
from imgbuild.engine.row import Row, Step
from imgbuild.engine.schedule import Task
from imgbuild.engine.workload import Workload

EXPORT = "exporting to image"
#: The greatest share of what is left that may be unknown.
_UNKNOWN = 0.3
#: What a step is taken for that only copies files and was never seen, in seconds.
_COPY_WORK = 1.0
#: How much of its time so far a step is given that took longer than ever, at least a second.
_OVERDUE = 0.1
_SMOOTH_SECONDS = 8.0


@dataclass
class Prospect:
    """What is left to do, as tasks; ``unknown`` are those whose work nobody knows."""

    tasks: dict[Hashable, Task] = field(default_factory=dict)
    unknown: set[Hashable] = field(default_factory=set)

    def add(self, key: Hashable, work: float | None, task: Task) -> None:
        """Add a task; ``work`` is what is left of it, ``None`` if that is not known."""
        self.tasks[key] = replace(task, work=work or 0.0)
        if work is None:
            self.unknown.add(key)

    def complete(self) -> dict[Hashable, Task] | None:
        """Return the tasks, the unknown ones as the median of their kind; ``None``: too many."""
        if len(self.unknown) > _UNKNOWN * len(self.tasks):
            return None
        known = {limited: self._median(limited=limited) for limited in (False, True)}
        if any(known[self.tasks[key].limited] is None for key in self.unknown):
            return None
        return {
            key: replace(task, work=known[task.limited] or 0.0) if key in self.unknown else task
            for key, task in self.tasks.items()
        }

    def _median(self, *, limited: bool) -> float | None:
        found = [
            task.work
            for key, task in self.tasks.items()
            if key not in self.unknown and task.limited is limited
        ]
        return statistics.median(found) if found else None


def prospect(board: Board, load: Workload, learnt: Learnt, *, together: bool) -> Prospect:
    """Return what is left to do; ``together``: suites run while other images are built."""
    left = Prospect()
    for row in board.busy:
        if not row.final and row.to_do == "build" and row.built_at is None:
            _add_build(left, row, load, learnt)
    built = frozenset(left.tasks)
    for row in board.busy if board.tests else ():
        if not row.final and row.to_do in {"build", "test"}:
            work = learnt.expected(suites_key(row)) or learnt.like("suites:")
            after = frozenset({_last(row)}) if together else built
            done = load.done.get(suites_of(row), 0.0)
            left.add(suites_of(row), work and _rest(work, done), Task(0, after, limited=True))
    return left


def suites_of(row: Row) -> Hashable:
    """Return what the suites of an image are called in a `Workload`."""
    return ("suites", row.image)


def suites_key(row: Row) -> str:
    """Return what the suites of an image are called in `Learnt`."""
    return f"suites:{row.image}"


def step_work(text: str, images: list[str], learnt: Learnt) -> float | None:
    """Return the work of a step, by itself or by its like."""
    own = (step_key(text, images[0]),) if len(images) == 1 else ()
    work = learnt.expected(*own, step_key(text))
    work = learnt.like(step_kind(text)) if work is None else work
    return _COPY_WORK if work is None and "] RUN " not in text else work


@dataclass
class Countdown:
    """Keeps a shown estimate from jumping about: it goes over to a new one within some seconds."""

    _end: float | None = None
    _at: float = 0.0

    def shown(self, left: float | None, now: float) -> float | None:
        """Return the seconds to show for an estimate of ``left``."""
        if left is None:
            self._end = None
            return None
        if self._end is None:
            self._end = now + left
        weight = 1.0 - math.exp(-(now - self._at) / _SMOOTH_SECONDS)
        self._end += (now + left - self._end) * weight
        self._at = now
        return max(0.0, self._end - now)


def _add_build(left: Prospect, row: Row, load: Workload, learnt: Learnt) -> None:
    if not row.steps and row.state == "waiting":  # its steps are not known yet
        work = learnt.expected(f"image:{row.image}") or learnt.like("image:")
        left.add(_last(row), work, Task(0))
        return
    open_steps = [*_open(row)]
    for step in open_steps:
        key = (step.number, step.text)
        if key not in left.tasks:
            work = step_work(step.text, [row.image], learnt)
            rest = None if work is None else _rest(work, load.done.get(key, 0.0))
            after = (row.steps[number] for number in row.waits_for(step.number))
            left.add(key, rest, Task(0, frozenset((one.number, one.text) for one in after)))
    exporting = any(is_export(step.text) for step in open_steps)
    work = 0.0 if exporting else step_work(EXPORT, [row.image], learnt)
    waits = frozenset((step.number, step.text) for step in open_steps)
    left.add(_last(row), work, Task(0, waits))


def _last(row: Row) -> Hashable:
    return ("export", row.image)


def _open(row: Row) -> Iterator[Step]:
    return (step for step in row.steps.values() if step.state in {"planned", "running"})


def _rest(work: float, done: float) -> float:
    return work - done if work > done else max(1.0, _OVERDUE * done)
