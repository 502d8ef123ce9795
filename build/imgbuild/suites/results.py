"""The results of the suites in one image: frozen values that print themselves as JSON."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

#: The suite that a machine without a GPU skips; an image is tagged without it.
NEEDS_GPU = "gpu_runs"
#: How the reasons begin where no expectation was given (tests/image/skip_reasons.py).
NOT_ASKED = "not asked: "
#: The longest reason of a failure in a line, in characters; reports have the whole message.
REASON_LENGTH = 200
#: testinfra's parameter, which is between or beside those of the checks.
_CONTAINER = re.compile(r"-?docker://[0-9a-f]+")


def shortened(text: str, length: int) -> str:
    """Return a text without line ends, of at most ``length`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


class Verdict(StrEnum):
    """The outcome of a suite, or of all suites of an image. A skipped check is no passed one."""

    PASSED = "passed"
    FAILED = "failed"
    #: Some checks passed, the others were skipped.
    INCOMPLETE = "incomplete"
    #: Every check was skipped.
    SKIPPED = "skipped"
    #: No expectation was given for an external image.
    NOT_ASKED = "not asked"
    #: The suites were not run, or not in their present form.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TestFailure:
    """One failed check: its name and its message."""

    __test__ = False  # the name begins with Test, but pytest must not collect it

    test: str
    message: str

    @property
    def reason(self) -> str:
        """The message in one line: of long output the first line, and the last that has an error.

        In a traceback pytest marks the message's lines with ``E``.
        """
        lines = self.message.splitlines()
        lines = [line[1:] for line in lines if line.startswith("E ")] or lines
        errors = [line for line in lines[1:] if "error" in line.lower()]
        if errors:
            lines = [shortened(lines[0], REASON_LENGTH // 2), "…", errors[-1]]
        return shortened(" ".join(lines), REASON_LENGTH)


@dataclass(frozen=True)
class TestSkip:
    """One check that was not made, and why."""

    __test__ = False

    test: str
    reason: str


@dataclass(frozen=True)
class SuiteResult:
    """One suite's outcome. ``seconds`` is the time of its checks.

    ``not_asked`` are checks whose expectation was not given: there are none in an image of the
    matrix. ``before`` is the ISO 8601 time of the result, if the suite was not run again.
    """

    suite: str
    passed: int
    failures: tuple[TestFailure, ...]
    skips: tuple[TestSkip, ...]
    seconds: float
    not_asked: tuple[TestSkip, ...] = ()
    before: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The suite's outcome; one without any check has failed."""
        if self.failures or not (self.passed or self.skips or self.not_asked):
            return Verdict.FAILED
        if self.skips:
            return Verdict.INCOMPLETE if self.passed else Verdict.SKIPPED
        return Verdict.PASSED if self.passed else Verdict.NOT_ASKED

    @property
    def ok(self) -> bool:
        """Whether this suite lets the image be tagged."""
        no_gpu = self.suite == NEEDS_GPU and self.verdict is Verdict.SKIPPED
        return no_gpu or self.verdict in {Verdict.PASSED, Verdict.NOT_ASKED}

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many checks were skipped, by reason."""
        return Counter(skip.reason for skip in self.skips)

    @property
    def problem(self) -> str:
        """Why it has not passed, in one line: its first failure, or what was skipped."""
        if not self.failures:
            skipped = (f"{count} skipped: {reason}" for reason, count in self.reasons.items())
            return ", ".join(skipped) or "nothing was checked"
        first, failed = self.failures[0], len(self.failures)
        counted = f"{failed} of {failed + self.passed} tests failed, first "
        return f"{counted if failed > 1 else ''}{first.test}: {first.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the suite's part of the report."""
        return {
            "suite": self.suite,
            "verdict": str(self.verdict),
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
    """The results of all suites in one image, and the digest of the suites' code.

    ``gpus`` says whether the engine offered GPUs: a suite that was skipped without them is run
    again with them. ``not_begun`` are suites that came after the first failure, where that ends the
    run; ``unspecified`` are facts that ``--expect`` leaves out of an external image.
    """

    image: str
    image_id: str
    code_digest: str
    suites: tuple[SuiteResult, ...]
    gpus: bool = False
    reference: str = ""
    not_begun: tuple[str, ...] = ()
    unspecified: tuple[str, ...] = ()
    #: Wall time from the start of the container to its end; what passed before takes none.
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the image may be tagged."""
        return self.verdict is Verdict.PASSED

    @property
    def verdict(self) -> Verdict:
        """The outcome of all suites; missing GPUs alone leave it whole."""
        each = {suite.verdict for suite in self.suites if not suite.ok}
        if Verdict.FAILED in each or not self.suites:
            return Verdict.FAILED
        if not any(suite.passed for suite in self.suites):
            return Verdict.SKIPPED
        return Verdict.INCOMPLETE if each or self.not_begun else Verdict.PASSED

    def as_json(self) -> dict[str, Any]:
        """Return the whole report."""
        return {
            "image": self.image,
            "image_id": self.image_id,
            "reference": self.reference,
            "suite_code": self.code_digest,
            "gpus_offered": self.gpus,
            "ok": self.ok,
            "verdict": str(self.verdict),
            "seconds": round(self.seconds, 1),
            "suites": [suite.as_json() for suite in self.suites],
            "not_begun": list(self.not_begun),
            "not_given": list(self.unspecified),
        }


def left_out(report: Report) -> list[tuple[tuple[str, ...], str]]:
    """Return what was not tested in an image, and why."""
    found = [
        (report.unspecified, "not checked, because --expect does not say"),
        (report.not_begun, "not started after the first failure"),
    ]
    return [(names, why) for names, why in found if names]


@dataclass(frozen=True)
class Check:
    """One check that has ended. ``outcome`` is ``passed``, ``failed`` or ``skipped``."""

    suite: str
    test: str
    outcome: str
    seconds: float
    message: str = ""


@dataclass
class CheckStream:
    """The checks of one pytest run, from the lines of JSON that its plugin writes to a pipe.

    The lines are ``{"checks": 80}``, ``{"begins": "pins"}``, one `Check` for each that ended, and
    ``{"ended": true}`` (tests/image/result_stream.py). ``milestone`` gets suites that begin and
    the first failure of each reason, ``step`` every change.
    """

    milestone: Callable[[str], None]
    step: Callable[[str], None]
    suite: str = ""
    expected: int = 0
    failed: int = 0
    reported: set[tuple[str, str]] = field(default_factory=set)
    #: Whether pytest ended by itself, so that no line is missing.
    ended: bool = False
    checks: list[Check] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Take in one line."""
        try:
            event = json.loads(line)
        except ValueError:  # the line that a kill cut off
            return
        self.expected += event.get("checks", 0)
        self.ended = self.ended or "ended" in event
        if "outcome" in event:
            self._add(Check(**{**event, "test": check_name(event["test"])}))
        if event.get("begins", self.suite) != self.suite:
            self.suite = event["begins"]
            self.milestone(self.text)
        self.step(self.text)

    def _add(self, check: Check) -> None:
        self.checks.append(check)
        if check.outcome == "failed":
            self.failed += 1
            reason = TestFailure(check.test, check.message).reason
            if (check.suite, reason) not in self.reported:
                self.reported.add((check.suite, reason))
                self.milestone(f"FAILED {check.suite}: {check.test}: {reason}")

    @property
    def text(self) -> str:
        """Return what a line shows: ``horovod 23/80, 1 failed``."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.suite} {len(self.checks)}/{self.expected}{failed}"


def check_name(name: str) -> str:
    """Return a check's name without the container, which is gone when the name is read."""
    return _CONTAINER.sub("", name).replace("[-", "[").replace("[]", "")


def suite_results(
    checks: Iterable[Check], suites: Sequence[str], *, whole: bool = True
) -> tuple[SuiteResult, ...]:
    """Return one result a suite; a suite without any check has passed nothing.

    Where the run ended with the first failure (not ``whole``), such a suite was not begun, and has
    no result.
    """
    found: dict[str, list[Check]] = {suite: [] for suite in suites}
    for check in checks:
        found.setdefault(check.suite, []).append(check)
    return tuple(_result(suite, checks) for suite, checks in found.items() if checks or whole)


def _result(suite: str, checks: Sequence[Check]) -> SuiteResult:
    skipped = [TestSkip(c.test, c.message) for c in checks if c.outcome == "skipped"]
    return SuiteResult(
        suite,
        sum(check.outcome == "passed" for check in checks),
        tuple(TestFailure(c.test, c.message) for c in checks if c.outcome == "failed"),
        tuple(skip for skip in skipped if not skip.reason.startswith(NOT_ASKED)),
        sum(check.seconds for check in checks),
        tuple(skip for skip in skipped if skip.reason.startswith(NOT_ASKED)),
    )
