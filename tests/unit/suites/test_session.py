"""Test sessions: several images side by side, reports on disk, what is run again."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from imgbuild.cli.test_command import raise_failures
from imgbuild.errors import CheckFailedError
from imgbuild.project import Project
from imgbuild.suites import session as session_module
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import Report, ReportStore, SuiteResult, TestFailure, TestSkip
from imgbuild.suites.runner import SuitesStoppedError, TestOptions, TestSession
from imgbuild.suites.session import TestRun, report_on, run_targets

PASSED = SuiteResult("pins", 3, (), (), 1.0)
FAILED = SuiteResult("horovod", 2, (TestFailure("test_x[mpirun]", "a\nb"),), (), 1.0)


def _target(name: str) -> TestTarget:
    return _expecting(name, name)


def _expecting(name: str, expected: str) -> TestTarget:
    facts = {"name": expected, "tensorflow": "2.2.3", "variant": "cpu"}
    return TestTarget(name, f"sha256:{name}", f"{name}:1", "cpu", facts)


def _report(name: str, *suites: SuiteResult) -> Report:
    return Report(name, f"sha256:{name}", "sha256:code", suites)


@pytest.fixture
def session(project: Project, tmp_path: Path) -> TestSession:
    store = ReportStore(tmp_path / "store")
    folder = tmp_path / "reports"
    return TestSession(project, FakeEngine([]), store, folder, lambda _: None)


#: Runs suites in a target, in a session; the options have its stop.
Runs = Callable[[Callable[..., Report]], None]
OPTIONS = TestOptions(("pins",))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Return how to replace the run of pytest."""
    return partial(monkeypatch.setattr, session_module, "run_suites")


def test_a_suite_that_passed_is_not_run_again(session: TestSession, runs: Runs) -> None:
    begun: list[tuple[str, ...]] = []

    def run(_target: object, suites: tuple[str, ...], *_: object) -> Report:
        begun.append(suites)
        return _report("one", *(SuiteResult(name, 1, (), (), 1.0) for name in suites))

    runs(run)
    target = _target("one")
    assert report_on(target, session, OPTIONS).suites[0].before is None
    again = report_on(target, session, TestOptions(("pins", "horovod")))
    assert {s.suite: s.before is None for s in again.suites} == {"horovod": True, "pins": False}
    report_on(target, session, TestOptions(("pins",), rerun=True))
    assert begun == [("pins",), ("horovod",), ("pins",)]
    report_on(_expecting("one", "other"), session, OPTIONS)
    assert begun[3:] == [("pins",)]
    assert again.reference == "one:1"


def test_the_files_of_a_run(session: TestSession, runs: Runs, tmp_path: Path) -> None:
    runs(lambda *_: _report("one", PASSED))
    report = report_on(_target("one"), session, OPTIONS)
    folder = tmp_path / "reports"
    assert json.loads((folder / "one" / "report.json").read_text()) == report.as_json()
    assert "`pins`" in (folder / "one" / "summary.md").read_text()
    (folder / "one" / "junit.xml").write_text("of the last run")
    report_on(_target("one"), session, OPTIONS)
    assert not (folder / "one" / "junit.xml").exists()


@pytest.mark.parametrize("fail_fast", [True, False])
def test_the_first_failure_can_end_a_run(
    session: TestSession, runs: Runs, *, fail_fast: bool
) -> None:
    begun: list[str] = []

    def run(target: TestTarget, *_: object) -> Report:
        begun.append(target.name)
        time.sleep(0.1)
        return _report(target.name, FAILED if target.name == "a" else PASSED)

    runs(run)
    options = TestOptions(("pins", "horovod"), fail_fast=fail_fast)
    outcome = run_targets([_target(name) for name in "abcd"], session, options, 1)
    assert outcome.reports[0].image == "a"
    if fail_fast:
        assert outcome.not_begun[-2:] == ["c", "d"]
    else:
        assert begun == ["a", "b", "c", "d"]


def test_an_image_that_cannot_be_tested_stops_no_other(session: TestSession, runs: Runs) -> None:
    gate = threading.Barrier(3, timeout=10)

    def run(target: TestTarget, *_: object) -> Report:
        gate.wait()  # fails unless all run at once
        if target.name == "a":
            raise CheckFailedError("pytest is broken")
        return _report(target.name, PASSED)

    runs(run)
    outcome = run_targets([_target(name) for name in "abc"], session, OPTIONS, 3)
    assert [*outcome.errors] == ["a"]
    assert [report.image for report in outcome.reports] == ["b", "c"]
    written = json.loads((session.reports / "report.json").read_text())
    assert [report["image"] for report in written] == ["b", "c"]
    assert "- `a`: pytest is broken" in (session.reports / "summary.md").read_text()


def test_an_interrupt_stops_all_and_waits_for_them(session: TestSession, runs: Runs) -> None:
    both = threading.Barrier(2)
    ended: list[str] = []

    def run(target: TestTarget, _suites: object, _: object, options: TestOptions) -> Report:
        if both.wait(20) == 0:  # one of the two; a second interrupt would not wait
            os.kill(os.getpid(), signal.SIGALRM)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if options.stop.is_set():
                ended.append(target.name)
                raise SuitesStoppedError
            time.sleep(0.02)
        return _report(target.name, PASSED)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    runs(run)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_targets([_target(name) for name in "abc"], session, OPTIONS, 2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert sorted(ended) == ["a", "b"]


NO_GPU = SuiteResult("gpu_runs", 0, (), (TestSkip("test_x", "no NVIDIA driver: none"),), 1.0)
ONE_GPU = SuiteResult("gpu_runs", 3, (), (TestSkip("test_x", "not proved: one GPU"),), 1.0)


@pytest.mark.parametrize(
    ("suites", "problem"),
    [
        ((PASSED, NO_GPU), "one: gpu_runs: 1 skipped: no NVIDIA driver: none"),
        ((PASSED,), "--require-gpu: suite gpu_runs did not run here"),
        ((PASSED, replace(ONE_GPU, found="registry.example.org/ci/cache")), "did not run here"),
        ((PASSED, ONE_GPU), None),
    ],
)
def test_a_gpu_can_be_required(suites: tuple[SuiteResult, ...], problem: str | None) -> None:
    run = TestRun([_report("one", *suites)], {}, [], Path("summary.md"))
    raise_failures(run, require_gpu=False)
    if problem is None:
        raise_failures(run, require_gpu=True)
        return
    with pytest.raises(CheckFailedError, match=re.escape(problem)):
        raise_failures(run, require_gpu=True)
