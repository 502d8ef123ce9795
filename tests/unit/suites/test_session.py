"""Test sessions: several images side by side, reports on disk, what is run again.

That an interrupt ends them all is seen in tests/e2e/test_build_faults.py.
"""

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from imgbuild.cli.test_command import raise_failures
from imgbuild.core.errors import CheckFailedError
from imgbuild.core.project import Project
from imgbuild.suites import session as session_module
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import Report, SuiteResult
from imgbuild.suites.runner import TestSession
from imgbuild.suites.session import report_on, run_targets
from imgbuild.suites.store import ReportStore
from support.fake_engine import FakeEngine
from support.suite_results import changed
from support.suite_samples import FAILED, NO_GPU, PINS, SOME_GPU, report_of

#: Runs suites in a target, in a session.
Runs = Callable[[Callable[..., Report]], None]


def _target(name: str) -> TestTarget:
    facts = {"variant": "cpu", "tensorflow": "2.2.3", "mpi_flavour": "openmpi"}
    expected = {"name": name, **facts}
    return TestTarget(name, f"sha256:{name}", f"{name}:1", "cpu", expected)


@pytest.fixture
def session(project: Project, tmp_path: Path) -> TestSession:
    store = ReportStore(tmp_path / "store")
    reports = tmp_path / "reports"
    return TestSession(project, FakeEngine(), store, reports, lambda _: None, ("pins",))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Return how to replace the run of pytest."""
    return partial(monkeypatch.setattr, session_module, "run_suites")


def test_a_suite_that_passed_is_not_run_again(session: TestSession, runs: Runs) -> None:
    begun: list[tuple[str, ...]] = []

    def run(_target: object, suites: tuple[str, ...], *_: object) -> Report:
        begun.append(suites)
        return report_of("one", *(changed(PINS, suite=name) for name in suites))

    runs(run)
    report_on(_target("one"), session)
    again = report_on(_target("one"), replace(session, suites=("pins", "horovod")))
    assert {s.suite: s.before is None for s in again.suites} == {"horovod": True, "pins": False}
    (stale := session.reports / "one" / "junit.xml").write_text("of the last run")
    report_on(_target("one"), replace(session, rerun=True))
    assert not stale.exists()
    assert begun == [("pins",), ("horovod",), ("pins",)]


@pytest.mark.parametrize("fail_fast", [True, False])
def test_the_first_failure_can_end_a_run(
    session: TestSession, runs: Runs, *, fail_fast: bool
) -> None:
    def run(target: TestTarget, *_: object) -> Report:
        time.sleep(0.1)
        return report_of(target.name, FAILED if target.name == "a" else PINS)

    runs(run)
    session = replace(session, suites=("pins", "horovod"), fail_fast=fail_fast)
    reports, _, not_begun = run_targets([_target(name) for name in "abcd"], session, 1)
    assert reports[0].image == "a"
    assert not_begun[-2:] == (["c", "d"] if fail_fast else [])


def test_an_image_that_cannot_be_tested_stops_no_other(session: TestSession, runs: Runs) -> None:
    gate = threading.Barrier(3, timeout=10)

    def run(target: TestTarget, *_: object) -> Report:
        gate.wait()  # fails unless all run at once
        if target.name == "a":
            raise CheckFailedError("pytest is broken")
        return report_of(target.name, PINS)

    runs(run)
    reports, errors, _ = run_targets([_target(name) for name in "abc"], session, 3)
    assert [*errors] == ["a"]
    assert [report.image for report in reports] == ["b", "c"]
    written = json.loads((session.reports / "report.json").read_text())
    assert written == [report.as_json() for report in reports]
    assert written[0] == json.loads((session.reports / "b" / "report.json").read_text())
    assert "`a`: pytest is broken" in (session.reports / "summary.md").read_text()


@pytest.mark.parametrize(
    ("suites", "problem"),
    [
        ((PINS, NO_GPU), "one: gpu_runs: 1 skipped: no | driver"),
        ((PINS,), "--require-gpu: the suite gpu_runs did not run"),
        (
            (PINS, SOME_GPU.model_copy(update={"found": "registry.example.org/ci/cache"})),
            "did not run on this machine",
        ),
        ((PINS, SOME_GPU), None),
    ],
)
def test_a_gpu_can_be_required(suites: tuple[SuiteResult, ...], problem: str | None) -> None:
    reports = [report_of("one", *suites)]
    raise_failures(reports, {}, [], require_gpu=False)
    if problem is None:
        raise_failures(reports, {}, [], require_gpu=True)
        return
    with pytest.raises(CheckFailedError, match=re.escape(problem)):
        raise_failures(reports, {}, [], require_gpu=True)
