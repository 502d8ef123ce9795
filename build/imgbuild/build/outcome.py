"""What became of one image of a build."""

from dataclasses import dataclass
from typing import Any

from imgbuild.build.blame import Blame
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import Report


@dataclass(frozen=True)
class Outcome:
    """One image after a build. Times are wall seconds; ``size`` is in bytes.

    ``build_seconds`` is the image's own: from its first step that was not cached to its export;
    that of the whole bake where the progress of the steps is not known. ``blame`` counts only with
    an ``error``.
    """

    item: PlanItem
    image_id: str | None = None
    size: int = 0
    build_seconds: float = 0.0
    test_seconds: float = 0.0
    report: Report | None = None
    named: bool = False
    error: str | None = None
    blame: Blame = Blame.IMAGE

    @property
    def ok(self) -> bool:
        """Whether the image has its name now."""
        return self.named and self.error is None

    @property
    def state(self) -> str:
        """What a table says of it."""
        if self.report and not self.report.ok:
            return f"suites {self.report.verdict}"
        if self.error:
            return "failed"
        return "up to date" if self.item.action is Action.NOTHING else "done"

    def as_json(self) -> dict[str, Any]:
        """Return what ``build --json`` prints."""
        return {
            **self.item.as_json(),
            "image_id": self.image_id or self.item.image_id,
            "state": self.state,
            "tags": list(self.item.image.tags) if self.ok else [],
            "size": self.size,
            "build_seconds": round(self.build_seconds, 1),
            "test_seconds": round(self.test_seconds, 1),
            "report": self.report.as_json() if self.report else None,
            "error": self.error,
        }
