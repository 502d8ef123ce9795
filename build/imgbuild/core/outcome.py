"""How a suite or the work on an image ended."""

from enum import StrEnum


class Outcome(StrEnum):
    """How a suite, all suites of an image, or the work on an image ended."""

    #: Every check passed; a skipped check does not count as passed.
    PASSED = "passed"
    FAILED = "failed"
    #: No check failed, but some reached their time limit, perhaps because the machine is slow.
    TIMED_OUT = "timed out"
    #: Some checks passed, and the others were skipped.
    INCOMPLETE = "incomplete"
    #: Every check was skipped.
    SKIPPED = "skipped"
    #: The suites were not run, or have changed since they ran.
    UNKNOWN = "unknown"
    TAGGED = "tagged"
    PUBLISHED = "published"
    UP_TO_DATE = "up to date"
    #: The work stopped because another image failed.
    CANCELLED = "cancelled"
