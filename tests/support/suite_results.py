"""Results of suites with other checks, for tests."""

from typing import Any

from imgbuild.suites.results import SuiteResult, suite_result

#: The facts that a verdict follows from, and the name.
FACTS = ("suite", "passed", "failures", "timed_out", "skipped", "seconds")


def changed(result: SuiteResult, **changes: Any) -> SuiteResult:
    """Return the result of a suite that ran with other checks."""
    facts = {name: getattr(result, name) for name in FACTS}
    return suite_result(**{**facts, **changes})


def stored(result: SuiteResult, key: str, **changes: Any) -> SuiteResult:
    """Return what this machine remembers of a result."""
    kept = {"before": "2026-11-20T10:11:12Z", "found": None, "key": key, **changes}
    return result.model_copy(update=kept)
