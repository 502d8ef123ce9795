"""Results: which checks count as passed, what pytest's plugin writes, and the summary."""

import json

import pytest

from imgbuild.suites.results import (
    Check,
    CheckStream,
    Report,
    SuiteResult,
    TestFailure,
    TestSkip,
    Verdict,
    check_name,
    suite_results,
)
from imgbuild.suites.summary import summary

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
        ((PASSED, SOME_GPU), False, Verdict.INCOMPLETE),
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


def test_checks_become_suite_results() -> None:
    checks = [
        Check("pins", "a", "passed", 1.5),
        Check("pins", "b", "failed", 0.5, "why"),
        Check("gpu", "c", "skipped", 0.0, "no driver"),
        Check("gpu", "d", "skipped", 0.0, "not asked: labels"),
    ]
    pins, gpu, horovod = suite_results(checks, ("pins", "gpu", "horovod"))
    assert (pins.passed, pins.seconds) == (1, 2.0)
    assert pins.failures == (TestFailure("b", "why"),)
    assert (gpu.skips, gpu.not_asked) == (
        (TestSkip("c", "no driver"),),
        (TestSkip("d", "not asked: labels"),),
    )
    assert not horovod.ok
    assert gpu.as_json()["skipped"] == [{"test": "c", "reason": "no driver"}]
    begun = suite_results(checks, ("pins", "gpu", "horovod"), whole=False)
    assert [result.suite for result in begun] == ["pins", "gpu"]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("test_a", "test_a"),
        ("test_a[docker://0af9]", "test_a"),
        ("test_a[mpirun-docker://0af9-float32]", "test_a[mpirun-float32]"),
        ("test_a[docker://0af9-cuda]", "test_a[cuda]"),
    ],
)
def test_a_checks_name_is_without_the_container(written: str, name: str) -> None:
    assert check_name(written) == name


def test_progress_is_shown_by_suite_and_failure() -> None:
    milestones: list[str] = []
    steps: list[str] = []
    stream = CheckStream(milestones.append, steps.append)
    check = {"suite": "pins", "test": "test_a[docker://0af9-git]", "seconds": 1, "message": "no"}
    for event in (
        {"checks": 3},
        {"begins": "pins"},
        {**check, "outcome": "passed"},
        {"begins": "pins"},
        {**check, "outcome": "failed"},
        {**check, "outcome": "failed"},
        {"begins": "horovod"},
    ):
        stream.read(json.dumps(event))
    stream.read('{"ended')
    failed = "FAILED pins: test_a[git]: no"  # the second failure has the same reason
    assert milestones == ["pins 0/3", failed, "horovod 3/3, 2 failed"]
    assert steps[-1] == "horovod 3/3, 2 failed"
    assert not stream.ended


def test_the_summary_has_a_column_an_image_and_the_reasons() -> None:
    text = summary(
        [
            _report("one", PASSED, FAILED, NO_GPU, not_begun=("tensorboard",)),
            _report("two", UNASKED, BEFORE, unspecified=("labels",)),
        ],
        {"three": "the engine\nhas no room"},
    )
    assert "## imgbuild test: 1 of 3 images passed" in text
    assert "| suite | `one` | `two` |" in text
    assert "| `pins` | ✅ passed, 3 checks, 1.0 s |  |" in text
    assert "| `horovod` | ❌ failed, 3 checks, 1 failed, 1.0 s |  |" in text
    assert "| `tensorflow` |  | ✅ passed before (2026-01-01T00:00:00Z), 6 checks |" in text
    assert "not asked, 0 checks, 1 not checked, 1.0 s" in text
    assert "`one` horovod: `test_x[mpirun]`\n\n````\na\n```\nb\n````" in text
    assert "- `one` gpu_runs: 2 skipped: no \\| driver" in text
    assert "- `two`: not checked, because --expect does not say: labels" in text
    assert "- `one`: not started after the first failure: tensorboard" in text
    assert "- `three`: the engine has no room" in text
    table = [line.count("|") for line in text.splitlines() if line.startswith("| `")]
    assert set(table) == {4}
