"""All images of a build, as its events tell them. Pure: it has a memory, but no clock."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from imgbuild.engine.progress import BakeBegun, BuildEvent, Event, StepPlanned, Transfer
from imgbuild.engine.row import Row, Step


@dataclass
class Board:
    """The rows of all images, in the order they were given."""

    rows: dict[str, Row]
    begun: float | None = None
    tests: bool = True
    _most: float = field(default=0.0)

    @classmethod
    def of(cls, images: Sequence[str]) -> "Board":
        """Return a board on which every image waits."""
        return cls({image: Row(image) for image in images})

    def expect(self, to_do: Mapping[str, str], now: float, *, tests: bool) -> None:
        """Take in the plan: ``build``, ``test``, ``name`` or ``nothing`` for each image."""
        self.tests = tests
        for image, action in to_do.items():
            row = self.rows.setdefault(image, Row(image))
            row.to_do = action
            if action == "nothing":
                row.note("up to date", "", now, ended=True)

    def event(self, event: Event, now: float) -> Row | None:
        """Take in an event; return the row of a step that began or ended."""
        match event:
            case BakeBegun():
                for row in self._rows(event.targets):
                    row.begin_bake()
            case StepPlanned():
                for row in self._rows((event.target,)):
                    row.plan(event)
            case Transfer():
                for row in self._rows(event.targets):
                    row.moved[event.number, event.name] = event
            case BuildEvent():
                for row in self._rows((event.target,)):
                    self.begun = now if self.begun is None else self.begun
                    row.take(event, now)
                    return row
        return None

    def note(self, image: str, state: str, text: str, now: float, *, ended: bool) -> Row:
        """Take in what is done for an image outside a build."""
        row = self.rows.setdefault(image, Row(image))
        self.begun = now if self.begun is None else self.begun
        row.note(state, text, now, ended=ended)
        return row

    @property
    def busy(self) -> list[Row]:
        """The images that something has to be done for."""
        return [row for row in self.rows.values() if row.to_do != "nothing"]

    @property
    def running(self) -> dict[tuple[int, str], Step]:
        """Every step that runs now, once, however many images share it."""
        found = [step for row in self.rows.values() for step in row.running]
        return {(step.number, step.text): step for step in found}

    def sharers(self, event: BuildEvent) -> list[str]:
        """Return the images that wait for a step."""
        return [
            row.image
            for row in self.rows.values()
            if (step := row.steps.get(event.number)) and step.text == event.step
        ]

    def longest(self) -> tuple[Row, Step] | None:
        """Return the step that has run for longest, and an image it is for."""
        found = [(row, row.running[0]) for row in self.rows.values() if row.running]
        return min(found, key=lambda one: one[1].since or 0.0, default=None)

    def counts(self) -> Counter[str]:
        """Return how many images are in each state."""
        return Counter(row.state for row in self.rows.values())

    @property
    def done(self) -> int:
        """How many of the busy images nothing more is done for."""
        return sum(row.final for row in self.busy)

    def fraction(self, work: tuple[float, float] | None = None) -> float:
        """Return how much of all is done, from 0 to 1; it never falls.

        By ``work`` done and left, where that is known; else by the images' steps, of which an image
        that is built but not tested counts a little less.
        """
        if work and sum(work):
            now = work[0] / sum(work)
        else:
            shares = [1.0 if row.final else 0.9 * (row.fraction or 0.0) for row in self.busy]
            now = sum(shares) / len(shares) if shares else 1.0
        complete = self.done == len(self.busy)
        self._most = 1.0 if complete else max(self._most, min(now, 0.99))
        return self._most

    def _rows(self, images: Sequence[str | None]) -> list[Row]:
        return [self.rows[image] for image in images if image in self.rows]
