"""What is known of an image without running its suites again."""

from enum import StrEnum


class Verdict(StrEnum):
    """What is known of an image's suites, for the suites' present code."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
