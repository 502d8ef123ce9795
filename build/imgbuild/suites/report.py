"""What the suites found in one image: a frozen value that prints itself as JSON."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from imgbuild.atomic import write_text
from imgbuild.plan.plan import Verdict

#: What an image may have its name without: it needs a GPU, and builds need none.
NEEDS_GPU = "gpu_runs"


class Found(StrEnum):
    """What a suite, or all of an image's suites, came to. A skipped check is no passed one."""

    PASSED = "passed"
    FAILED = "failed"
    #: Some checks passed, the others were skipped.
    INCOMPLETE = "incomplete"
    #: Every check was skipped.
    SKIPPED = "skipped"


@dataclass(frozen=True)
class TestFailure:
    """One failed check: its name and what it said."""

    __test__ = False  # the name begins with Test, but pytest must not collect it

    test: str
    message: str


@dataclass(frozen=True)
class TestSkip:
    """One check that was not made, and why."""

    __test__ = False

    test: str
    reason: str


@dataclass(frozen=True)
class SuiteResult:
    """One suite's outcome. ``seconds`` is wall time."""

    suite: str
    passed: int
    failures: tuple[TestFailure, ...]
    skips: tuple[TestSkip, ...]
    seconds: float

    @property
    def found(self) -> Found:
        """What the suite came to; one without any check has failed."""
        if self.failures or not (self.passed or self.skips):
            return Found.FAILED
        if not self.skips:
            return Found.PASSED
        return Found.INCOMPLETE if self.passed else Found.SKIPPED

    @property
    def ok(self) -> bool:
        """Whether the image may have its name for all that this suite says."""
        needless = self.suite == NEEDS_GPU and self.found is Found.SKIPPED
        return needless or self.found is Found.PASSED

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many checks were skipped, by reason."""
        return Counter(skip.reason for skip in self.skips)

    def as_json(self) -> dict[str, Any]:
        """Return the suite's part of the report."""
        return {
            "suite": self.suite,
            "verdict": str(self.found),
            "passed": self.passed,
            "failed": len(self.failures),
            "seconds": round(self.seconds, 1),
            "failures": [{"test": f.test, "message": f.message} for f in self.failures],
            "skipped": [{"test": s.test, "reason": s.reason} for s in self.skips],
        }


@dataclass(frozen=True)
class Report:
    """What the suites found in one image, and with which code they looked.

    ``gpus`` tells whether the engine offered GPUs: what was skipped without is worth another look
    with them.
    """

    image: str
    image_id: str
    code_digest: str
    suites: tuple[SuiteResult, ...]
    gpus: bool = False

    @property
    def ok(self) -> bool:
        """Whether the image may have its name."""
        return self.found is Found.PASSED

    @property
    def found(self) -> Found:
        """What all suites came to; GPUs that are not there leave it whole."""
        each = {suite.found for suite in self.suites if not suite.ok}
        if Found.FAILED in each or not self.suites:
            return Found.FAILED
        if not any(suite.passed for suite in self.suites):
            return Found.SKIPPED
        return Found.INCOMPLETE if each else Found.PASSED

    def as_json(self) -> dict[str, Any]:
        """Return the whole report."""
        return {
            "image": self.image,
            "image_id": self.image_id,
            "suite_code": self.code_digest,
            "gpus_offered": self.gpus,
            "ok": self.ok,
            "verdict": str(self.found),
            "suites": [suite.as_json() for suite in self.suites],
        }


@dataclass(frozen=True)
class ReportStore:
    """The reports of this machine, one file an image id. Removing it only makes tests run again."""

    folder: Path

    def save(self, report: Report) -> None:
        """Keep a report of a full run."""
        write_text(self._path(report.image_id), json.dumps(report.as_json(), indent=2) + "\n")

    def verdict(
        self, image_id: str, code_digest: str, suites: Sequence[str], *, gpus: bool = False
    ) -> Verdict:
        """Return what is known of an image, for exactly this code and at least these suites.

        ``gpus`` tells whether the engine offers GPUs now: a report from before does not count then.
        """
        document = self._load(image_id)
        if document.get("suite_code") != code_digest:
            return Verdict.UNKNOWN
        found = {entry.get("suite") for entry in document.get("suites", [])}
        unseen = gpus and NEEDS_GPU in suites and not document.get("gpus_offered")
        if unseen or not {*suites} <= found:
            return Verdict.UNKNOWN
        if document.get("ok") is True:
            return Verdict.PASSED
        return Verdict.FAILED if document.get("verdict") == Found.FAILED else Verdict.UNKNOWN

    def _load(self, image_id: str) -> Mapping[str, Any]:
        try:
            document = json.loads(self._path(image_id).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _path(self, image_id: str) -> Path:
        return self.folder / f"{image_id.removeprefix('sha256:')}.json"
