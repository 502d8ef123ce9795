"""What several runs of one contestant say: medians and spread. A failed run has no time."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.process import Run


@dataclass(frozen=True)
class Samples:
    """The counted runs of one contestant, in the order they ran."""

    name: str
    runs: tuple[Run, ...]
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every run ended well and was found right; otherwise nothing here is a time."""
        return self.error is None and bool(self.runs) and all(run.code == 0 for run in self.runs)

    def values(self, figure: str) -> list[float]:
        """Return one figure of every run: ``wall``, ``cpu``, ``engine_cpu``, ``peak`` or a fact.

        Empty if a run failed, or has no such figure.
        """
        if not self.ok:
            return []
        found = [one.facts.get(figure, getattr(one, figure, None)) for one in self.runs]
        return (
            []
            if any(value is None for value in found)
            else [float(v) for v in found if v is not None]
        )

    def median(self, figure: str = "wall") -> float | None:
        """Return the median of a figure, or ``None`` if there is none."""
        values = self.values(figure)
        return statistics.median(values) if values else None

    def as_json(self) -> dict[str, object]:
        """Return everything, for the results file."""
        figures = {
            "wall",
            "cpu",
            "engine_cpu",
            "peak",
            *(k for run in self.runs for k in run.facts),
        }
        kept = {name: self.values(name) for name in sorted(figures)}
        return {
            "name": self.name,
            "ok": self.ok,
            "error": self.error,
            "figures": {name: values for name, values in kept.items() if values},
        }


def ratio(ours: Samples, theirs: Samples, figure: str = "wall") -> float | None:
    """Return the median of ours / theirs, round by round; ``None`` if either failed.

    By rounds, since a machine whose speed drifts slows the runs of one round alike.
    """
    pairs = list(zip(ours.values(figure), theirs.values(figure), strict=False))
    if not pairs or any(other == 0 for _, other in pairs):
        return None
    return statistics.median(one / other for one, other in pairs)


def find(samples: Sequence[Samples], name: str) -> Samples:
    """Return the contestant of that name; KeyError if there is none."""
    for one in samples:
        if one.name == name:
            return one
    raise KeyError(name)
