"""What the suites found in one image: a frozen value that prints itself as JSON."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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
    #: Nobody said what to expect of an image from elsewhere.
    NOT_ASKED = "not asked"


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
    """One suite's outcome. ``seconds`` is the time of its checks.

    ``not_asked`` are checks whose expectation nobody gave: there are none in an image of the
    matrix. ``before`` is when this was found, in ISO 8601, if the suite was not
    run again.
    """

    suite: str
    passed: int
    failures: tuple[TestFailure, ...]
    skips: tuple[TestSkip, ...]
    seconds: float
    not_asked: tuple[TestSkip, ...] = ()
    before: str | None = None

    @property
    def found(self) -> Found:
        """What the suite came to; one without any check has failed."""
        if self.failures or not (self.passed or self.skips or self.not_asked):
            return Found.FAILED
        if self.skips:
            return Found.INCOMPLETE if self.passed else Found.SKIPPED
        return Found.PASSED if self.passed else Found.NOT_ASKED

    @property
    def ok(self) -> bool:
        """Whether the image may have its name for all that this suite says."""
        needless = self.suite == NEEDS_GPU and self.found is Found.SKIPPED
        return needless or self.found in {Found.PASSED, Found.NOT_ASKED}

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
            "not_asked": [{"test": s.test, "reason": s.reason} for s in self.not_asked],
            "before": self.before,
        }


@dataclass(frozen=True)
class Report:
    """What the suites found in one image, and with which code they looked.

    ``gpus`` tells whether the engine offered GPUs: what was skipped without is worth another look
    with them. ``not_begun`` are suites that came after the first failure, where that ends the run;
    ``not_given`` are facts that nobody told of an image from elsewhere.
    """

    image: str
    image_id: str
    code_digest: str
    suites: tuple[SuiteResult, ...]
    gpus: bool = False
    reference: str = ""
    not_begun: tuple[str, ...] = ()
    not_given: tuple[str, ...] = ()
    #: Wall time from the start of the container to its end; what passed before takes none.
    seconds: float = 0.0

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
        return Found.INCOMPLETE if each or self.not_begun else Found.PASSED

    def as_json(self) -> dict[str, Any]:
        """Return the whole report."""
        return {
            "image": self.image,
            "image_id": self.image_id,
            "reference": self.reference,
            "suite_code": self.code_digest,
            "gpus_offered": self.gpus,
            "ok": self.ok,
            "verdict": str(self.found),
            "seconds": round(self.seconds, 1),
            "suites": [suite.as_json() for suite in self.suites],
            "not_begun": list(self.not_begun),
            "not_given": list(self.not_given),
        }
