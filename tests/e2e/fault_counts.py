"""The table of docs/evidence.md: how many faults the tests of `imgbuild push` injected.

Each test writes its row into `reports/publishing-faults.json`, if every moment was taken: `make
faults`. As a program this puts all of them into the page: `python tests/e2e/fault_counts.py`.
"""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Kit = TypeVar("Kit")
EVERY = os.environ.get("IMGBUILD_FAULTS") == "every"
"""Whether a fault is put at every moment, not at some of them."""
_ROOT = Path(__file__).resolve().parents[2]
REPORT = _ROOT / "reports" / "publishing-faults.json"
PAGE = _ROOT / "docs" / "reliability.md"
_HEAD = "| fault | injected | survived by itself | completed by a rerun | lost |"
_TABLE = re.compile(rf"^{re.escape(_HEAD)}\n(?:\|.*\n)+", re.MULTILINE)


class NotInjectedError(Exception):
    """The push never came to the moment of its fault: it counts for nothing, and the test fails."""


def injected(happened: object) -> None:
    """Fail unless the fault happened."""
    if not happened:
        raise NotInjectedError("it took fewer requests")


@dataclass
class FaultCounts:
    """What became of the pushes in which one kind of fault happened; threads may share it.

    In a ``with`` block the row is written at its end, also if a push was lost.
    """

    fault: str
    survived: int = 0
    rerun: int = 0
    lost: int = 0
    report: Path = REPORT
    every: bool = EVERY
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, word: str) -> None:
        """Count one push: ``survived``, ``rerun`` or ``lost``."""
        with self._lock:
            setattr(self, word, getattr(self, word) + 1)

    def of(self, push: Callable[[], str]) -> None:
        """Count a push by what it returns; one that fails is lost."""
        try:
            word = push()
        except NotInjectedError:
            raise
        except BaseException:
            self.note("lost")
            raise
        self.note(word)

    def each(self, work: Callable[[Kit, int], str]) -> Callable[[Kit, int], None]:
        """Return the work at one moment, counted."""
        return lambda kit, at: self.of(lambda: work(kit, at))

    def __enter__(self) -> Self:
        """Count."""
        return self

    def __exit__(self, *_: object) -> None:
        """Save."""
        self.save()

    def save(self) -> None:
        """Write the row into the report, in place of an earlier one of this fault.

        Not if only some moments were taken: the page tells of all.
        """
        if not self.every:
            return
        self.report.parent.mkdir(exist_ok=True)
        known = self.report.exists()
        rows = json.loads(self.report.read_text(encoding="utf-8")) if known else {}
        rows[self.fault] = {"survived": self.survived, "rerun": self.rerun, "lost": self.lost}
        self.report.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def table(report: Path = REPORT) -> str:
    """Return the report as the page's table, with a sum."""
    rows = json.loads(report.read_text(encoding="utf-8"))
    counts = {name: (row["survived"], row["rerun"], row["lost"]) for name, row in rows.items()}
    counts["**all**"] = tuple(map(sum, zip(*counts.values(), strict=True)))  # type: ignore[assignment]
    lines = [
        f"| {name} | {sum(row)} | {' | '.join(map(str, row))} |" for name, row in counts.items()
    ]
    return "\n".join([_HEAD, "|---|---|---|---|---|", *lines, ""])


def main() -> None:
    """Replace the page's table."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_TABLE.sub(lambda _: table(), page, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
