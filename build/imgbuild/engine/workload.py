"""How much work steps and suites are, in a measure that holds however many ran side by side.

The unit is the second of a processor: a step that shares two processors with three others is
charged half a second for each second. Timed by the clock, a step would seem four times as long in a
build of the family as it is alone.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field


@dataclass
class Workload:
    """Charges what runs. Give it the steps and the suites that run whenever they change.

    ``most_suites`` is how many suites ran side by side at most; ``together``, whether any ran while
    steps did.
    """

    processors: int
    done: dict[Hashable, float] = field(default_factory=dict)
    most_suites: int = 0
    together: bool = False
    _now: float | None = None
    _running: frozenset[Hashable] = frozenset()

    def run(self, steps: Iterable[Hashable], suites: Iterable[Hashable], now: float) -> None:
        """Charge what has run until now, and take in what runs from now on."""
        self.charge(now)
        built, tested = frozenset(steps), frozenset(suites)
        self._running = built | tested
        self.most_suites = max(self.most_suites, len(tested))
        self.together = self.together or bool(built and tested)

    def charge(self, now: float) -> None:
        """Charge what has run until now."""
        seconds = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        share = seconds * min(1.0, self.processors / max(1, len(self._running)))
        for one in self._running:
            self.done[one] = self.done.get(one, 0.0) + share

    @property
    def total(self) -> float:
        """All work done so far."""
        return sum(self.done.values())
