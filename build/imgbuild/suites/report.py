"""What the suites found in one image: a frozen value that prints itself as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.atomic import write_text
from imgbuild.plan.plan import Verdict


@dataclass(frozen=True)
class TestFailure:
    """One failed check: its name and what it said."""

    __test__ = False  # the name begins with Test, but pytest must not collect it

    test: str
    message: str


@dataclass(frozen=True)
class SuiteResult:
    """One suite's outcome. ``seconds`` is wall time; ``skips`` are the reasons, one a check."""

    suite: str
    passed: int
    failures: tuple[TestFailure, ...]
    skips: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing failed. A skip is no pass."""
        return self.passed > 0 and not self.failures

    def as_json(self) -> dict[str, Any]:
        """Return the suite's part of the report."""
        return {
            "suite": self.suite,
            "passed": self.passed,
            "failed": len(self.failures),
            "skipped": len(self.skips),
            "seconds": round(self.seconds, 1),
            "failures": [{"test": f.test, "message": f.message} for f in self.failures],
            "skips": list(self.skips),
        }


@dataclass(frozen=True)
class Report:
    """What the suites found in one image, and with which code they looked."""

    image: str
    image_id: str
    code_digest: str
    suites: tuple[SuiteResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every suite passed."""
        return bool(self.suites) and all(suite.ok for suite in self.suites)

    def as_json(self) -> dict[str, Any]:
        """Return the whole report."""
        return {
            "image": self.image,
            "image_id": self.image_id,
            "suite_code": self.code_digest,
            "ok": self.ok,
            "suites": [suite.as_json() for suite in self.suites],
        }


@dataclass(frozen=True)
class ReportStore:
    """The reports of this machine, one file an image id. Removing it only makes tests run again."""

    folder: Path

    def save(self, report: Report) -> None:
        """Keep a report of a full run."""
        write_text(self._path(report.image_id), json.dumps(report.as_json(), indent=2) + "\n")

    def verdict(self, image_id: str, code_digest: str, suites: Sequence[str]) -> Verdict:
        """Return what is known of an image, for exactly this code and at least these suites."""
        document = self._load(image_id)
        if document.get("suite_code") != code_digest:
            return Verdict.UNKNOWN
        found = document.get("suites", [])
        if not {*suites} <= {entry.get("suite") for entry in found}:
            return Verdict.UNKNOWN
        return Verdict.PASSED if document.get("ok") is True else Verdict.FAILED

    def _load(self, image_id: str) -> Mapping[str, Any]:
        try:
            document = json.loads(self._path(image_id).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _path(self, image_id: str) -> Path:
        return self.folder / f"{image_id.removeprefix('sha256:')}.json"
