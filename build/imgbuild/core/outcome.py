"""How a suite or the work on an image ended."""

from enum import StrEnum


class Outcome(StrEnum):
    """How a suite, all suites of an image, or the work on an image ended."""

    #: A skipped check is no passed one.
    PASSED = "passed"
    FAILED = "failed"
    #: No check failed, but some reached their limit of time: a slow machine can be the reason.
    TIMED_OUT = "timed out"
    #: Some checks passed, the others were skipped.
    INCOMPLETE = "incomplete"
    #: Every check was skipped.
    SKIPPED = "skipped"
    #: The suites were not run, or not in their present form.
    UNKNOWN = "unknown"
    TAGGED = "tagged"
    PUBLISHED = "published"
    UP_TO_DATE = "up to date"
    #: The failure of another image ended the work.
    CANCELLED = "cancelled"
