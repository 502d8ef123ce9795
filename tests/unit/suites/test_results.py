"""Results: which checks count as passed, why a suite has not, and the summary."""

import pytest

from imgbuild.errors import CheckFailedError
from imgbuild.suites.results import Report, SuiteResult, TestFailure, TestSkip, Verdict
from imgbuild.suites.session import summary

PASSED = SuiteResult("pins", 3, (), (), 1.0)
FAILED = SuiteResult("horovod", 2, (TestFailure("test_x[mpirun]", "a\n```\nb"),), (), 1.0)
SKIPPED = SuiteResult("pins", 0, (), (TestSkip("test_x", "no | driver"),), 1.0)
IN_PART = SuiteResult("pins", 2, (), SKIPPED.skips, 1.0)
EMPTY = SuiteResult("pins", 0, (), (), 1.0)
NO_GPU = SuiteResult("gpu_runs", 0, (), SKIPPED.skips * 2, 1.0)
SOME_GPU = SuiteResult("gpu_runs", 1, (), SKIPPED.skips, 1.0)
BAD_GPU = SuiteResult("gpu_runs", 0, FAILED.failures, SKIPPED.skips, 1.0)
UNASKED = SuiteResult("contents", 0, (), (), 1.0, (TestSkip("test_x", "not asked: labels"),))
BEFORE = SuiteResult("tensorflow", 6, (), (), 9.0, before="2026-01-01T00:00:00Z")


def _report(name: str, *suites: SuiteResult, **more: tuple[str, ...]) -> Report:
    return Report(name, "sha256:id", "sha256:code", suites, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("suites", "ok", "verdict"),
    [
        ((PASSED,), True, Verdict.PASSED),
        ((FAILED,), False, Verdict.FAILED),
        ((EMPTY,), False, Verdict.FAILED),
        ((SKIPPED,), False, Verdict.SKIPPED),
        ((PASSED, SKIPPED), False, Verdict.INCOMPLETE),
        ((IN_PART,), False, Verdict.INCOMPLETE),
        ((), False, Verdict.FAILED),
        ((PASSED, NO_GPU), True, Verdict.PASSED),
        ((NO_GPU,), False, Verdict.SKIPPED),
        ((PASSED, SOME_GPU), True, Verdict.PASSED),
        ((PASSED, BAD_GPU), False, Verdict.FAILED),
        ((PASSED, UNASKED), True, Verdict.PASSED),
        ((UNASKED,), False, Verdict.SKIPPED),
    ],
)
def test_only_checks_that_ran_and_passed_count(
    suites: tuple[SuiteResult, ...], ok: bool, verdict: Verdict
) -> None:
    report = _report("one", *suites)
    assert (report.ok, report.verdict) == (ok, verdict)
    assert report.as_json()["verdict"] == verdict
    if report.ok:
        stopped = _report("one", *suites, not_begun=("nodes",))
        assert (stopped.ok, stopped.verdict) == (False, Verdict.INCOMPLETE)


def test_the_summary_has_a_column_an_image_and_the_reasons() -> None:
    text = summary(
        [
            _report("one", PASSED, FAILED, NO_GPU, not_begun=("tensorboard",)),
            _report("two", UNASKED, BEFORE, unspecified=("labels",)),
        ],
        {"three": CheckFailedError("the engine\nhas no room")},
    )
    table = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = {row[0].strip(" `"): row[1:] for row in table}
    assert [cell.strip(" `") for cell in cells["suite"]] == ["one", "two"]
    for suite, column, facts in (
        ("pins", 0, ("passed", "3 checks", "1.0 s")),
        ("horovod", 0, ("failed", "3 checks", "1 failed")),
        ("tensorflow", 1, ("passed before", "2026-01-01T00:00:00Z", "6 checks")),
        ("contents", 1, ("not asked", "1 not checked")),
    ):
        assert all(fact in cells[suite][column] for fact in facts)
    assert "1 of 3 images passed" in text
    assert "\n````\na\n```\nb\n````" in text  # as a block of code, whatever is in it
    for fact in ("2 skipped: no \\| driver", "labels", "tensorboard", "the engine has no room"):
        assert fact in text


PIN = """
    def test_pin(component, image):
>       assert same(component, pin, found), f"{component}: pinned {pin}, the image has {found}"
E       AssertionError: python: pinned 3.6.15, the image has 3.6.14
E       assert False
E        +  where False = same_version('python', '3.6.15', '3.6.14')

tests/image/test_pins.py:52: AssertionError
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
