"""Results: which checks count as passed, why a suite has not, and the summary."""

from dataclasses import replace

import pytest
from suite_samples import FAILED, HOROVOD, NO_GPU, PINS, SKIPS, SOME_GPU

from imgbuild.errors import CheckFailedError
from imgbuild.suites.results import Report, SuiteResult, TestFailure, TestSkip, Verdict
from imgbuild.suites.session import summary

SKIPPED = replace(PINS, passed=0, skips=SKIPS)
UNASKED = SuiteResult("contents", 0, (), (), 1.0, (TestSkip("test_x", "not asked: labels"),))


def _report(name: str, *suites: SuiteResult) -> Report:
    return Report(name, "sha256:id", "sha256:code", suites)


@pytest.mark.parametrize(
    ("suites", "ok", "verdict"),
    [
        ((PINS,), True, Verdict.PASSED),
        ((FAILED,), False, Verdict.FAILED),
        ((replace(PINS, passed=0),), False, Verdict.FAILED),
        ((), False, Verdict.FAILED),
        ((SKIPPED,), False, Verdict.SKIPPED),
        ((PINS, replace(HOROVOD, skips=SKIPS)), False, Verdict.INCOMPLETE),
        ((HOROVOD, SKIPPED), False, Verdict.INCOMPLETE),
        ((PINS, NO_GPU), True, Verdict.PASSED),
        ((PINS, SOME_GPU), True, Verdict.PASSED),
        ((NO_GPU,), False, Verdict.SKIPPED),
        ((PINS, replace(NO_GPU, failures=FAILED.failures)), False, Verdict.FAILED),
        ((PINS, UNASKED), True, Verdict.PASSED),
        ((UNASKED,), False, Verdict.SKIPPED),
    ],
)
def test_only_checks_that_ran_and_passed_count(
    suites: tuple[SuiteResult, ...], ok: bool, verdict: Verdict
) -> None:
    report = _report("one", *suites)
    assert (report.ok, report.verdict) == (ok, verdict)
    if report.ok:
        stopped = replace(report, not_begun=("nodes",))
        assert (stopped.ok, stopped.verdict) == (False, Verdict.INCOMPLETE)


def test_the_summary_has_a_column_an_image_and_the_reasons() -> None:
    before = SuiteResult("tensorflow", 6, (), (), 9.0, before="2026-01-01T00:00:00Z")
    reports = [
        replace(_report("one", PINS, FAILED, NO_GPU), not_begun=("tensorboard",)),
        replace(_report("two", UNASKED, before), unspecified=("labels",)),
    ]
    text = summary(reports, {"three": CheckFailedError("the engine\nhas no room")})
    table = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = {row[0].strip(" `"): row[1:] for row in table}
    assert [cell.strip(" `") for cell in cells["suite"]] == ["one", "two"]
    for suite, column, facts in (
        ("pins", 0, ("passed", "3 checks", "1.5 s")),
        ("horovod", 0, ("failed", "3 checks", "1 failed")),
        ("tensorflow", 1, ("passed before", "2026-01-01T00:00:00Z", "6 checks")),
        ("contents", 1, ("not asked", "1 not checked")),
    ):
        assert all(fact in cells[suite][column] for fact in facts)
    assert "1 of 3 images passed" in text
    assert "\n````\na\n```\nb\n````" in text  # as a block of code, whatever is in it
    for fact in ("1 skipped: no \\| driver", "labels", "tensorboard", "the engine has no room"):
        assert fact in text


PIN = """
    def test_pin(component, image):
>       assert same(component, pin, found), f"{component}: pinned {pin}, the image has {found}"
E       AssertionError: python: pinned 3.6.15, the image has 3.6.14
E       assert False
E        +  where False = same_version('python', '3.6.15', '3.6.14')
"""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (PIN, "python: pinned 3.6.15, the image has 3.6.14"),
        ("E   AssertionError: a: no\nE     b: no\nE   assert not ['a', 'b']", "a: no b: no"),
        ("E   assert 1 == 2\nE    +  where 1 = f()", "assert 1 == 2 + where 1 = f()"),
    ],
)
def test_a_reason_is_the_message_of_an_assertion(message: str, reason: str) -> None:
    assert TestFailure("test_pin", message).reason == reason
