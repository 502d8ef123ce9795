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


def test_a_suite_says_why_it_has_not_passed_in_one_line() -> None:
    trace = "test_horovod.py:9: in test_ranks\n    assert run.ok\nE   Failed: rank 1\nE     is gone"
    failures = tuple(TestFailure(f"test_ranks[{one}]", trace) for one in range(13))
    many = SuiteResult("horovod", 1, failures, (), 1.0)
    assert many.problem == "13 of 14 tests failed, first test_ranks[0]: Failed: rank 1 is gone"
    assert FAILED.problem == "test_x[mpirun]: a ``` b"
    assert NO_GPU.problem == "2 skipped: no | driver"
    assert EMPTY.problem == "nothing was checked"
    long = TestFailure("test_x", "word " * 100).reason
    assert (len(long), long[-2:]) == (200, "d…")
    printed = f"exit code 1: mpirun {'x' * 200}\n--- stderr, last 2 lines\nOSError: no disk\n-----"
    short = TestFailure("test_x", printed).reason
    assert short == f"exit code 1: mpirun {'x' * 79}… … OSError: no disk"


def test_the_summary_has_a_column_an_image_and_the_reasons() -> None:
    text = summary(
        [
            _report("one", PASSED, FAILED, NO_GPU, not_begun=("tensorboard",)),
            _report("two", UNASKED, BEFORE, unspecified=("labels",)),
        ],
        {"three": CheckFailedError("the engine\nhas no room")},
    )
    assert "## imgbuild test: 1 of 3 images passed" in text
    assert "| suite | `one` | `two` |" in text
    assert "| `pins` | ✅ passed, 3 checks, 1.0 s |  |" in text
    assert "| `horovod` | ❌ failed, 3 checks, 1 failed, 1.0 s |  |" in text
    assert "| `tensorflow` |  | ✅ passed before (2026-01-01T00:00:00Z), 6 checks |" in text
    assert "not asked, 0 checks, 1 not checked, 1.0 s" in text
    assert "`one` horovod: `test_x[mpirun]`\n\n````\na\n```\nb\n````" in text
    assert "- `one`: gpu_runs: 2 skipped: no \\| driver" in text
    assert "- `two`: not checked, because --expect does not say: labels" in text
    assert "- `one`: not started after the first failure: tensorboard" in text
    assert "- `three`: the engine has no room" in text
    table = [line.count("|") for line in text.splitlines() if line.startswith("| `")]
    assert set(table) == {4}
