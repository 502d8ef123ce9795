"""pytest is really run against a container; nothing that it started outlives a run."""

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine, OfferingEngine

from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError
from imgbuild.project import Project
from imgbuild.suites import runner
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import ReportStore, TestSkip
from imgbuild.suites.runner import (
    CheckStream,
    TestOptions,
    TestSession,
    call_pytest,
    check_name,
    run_suites,
)
from waiting import is_running, wait_for

TARGET = TestTarget("tf-2.2-cpu-debian", "sha256:id", "x", "cpu", {"tensorflow": "2.2.0"})
CONFTEST = """
from result_stream import result_stream

def pytest_addoption(parser):
    parser.addoption("--expect")
    parser.addoption("--no-gpu")
    parser.addoption("--gpus-offered", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(result_stream())
"""
OUTCOMES = """
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError("left behind")

def test_passed(): pass
def test_failed(): assert 1 == 2
def test_skipped(): pytest.skip("no driver")
def test_skipped_in_fixture(skipping): pass
def test_clean_up(broken): pass

@pytest.fixture
def skipping():
    pytest.skip("not asked: labels")
"""


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


def test_progress_is_shown_by_suite_and_reason_of_failure() -> None:
    """A second failure with the same reason is no news; a line that is cut is none."""
    milestones: list[str] = []
    stream = CheckStream(milestones.append, print)
    check = {"suite": "pins", "test": "test_a[docker://0af9-git]", "seconds": 1, "message": "no"}
    failed = {**check, "outcome": "failed"}
    passed = {**check, "outcome": "passed"}
    for event in ({"checks": 3}, {"begins": "pins"}, passed, failed, failed):
        stream.read(json.dumps(event))
    stream.read('{"ended')
    assert not stream.finished
    assert [line for line in milestones if "FAILED" in line] == ["FAILED pins: test_a[git]: no"]


@pytest.fixture
def session(tmp_path: Path) -> TestSession:
    engine = FakeEngine([StoredImage("sha256:id", ())])
    checkout, store = Project(tmp_path / "checkout"), ReportStore(tmp_path / "store")
    return TestSession(checkout, engine, store, tmp_path / "out", lambda _: None)


def _write_suite(session: TestSession, project: Project, body: str) -> None:
    """Give the checkout its only suite, which needs no container."""
    suites = session.project.suites
    suites.mkdir(parents=True)
    (suites / "conftest.py").write_text(CONFTEST)
    (suites / "result_stream.py").symlink_to(project.suites / "result_stream.py")
    (suites / "test_toy.py").write_text(body)


TELLS = """
import pytest

def test_it(pytestconfig):
    pytest.fail(str((pytestconfig.getoption("gpus_offered"), pytestconfig.getoption("no_gpu"))))
"""


@pytest.mark.parametrize("kind", [FakeEngine, OfferingEngine])
def test_the_suites_are_told_whether_the_engine_offers_gpus(
    session: TestSession, project: Project, kind: type[FakeEngine]
) -> None:
    _write_suite(session, project, TELLS)
    session = replace(session, engine=kind([StoredImage("sha256:id", ())]))
    (toy,) = run_suites(replace(TARGET, variant="gpu"), ("toy",), session, TestOptions()).suites
    none = (False, "the engine offers none to containers")
    assert toy.failures[0].reason.endswith(str((True, None) if kind is OfferingEngine else none))


@pytest.mark.parametrize("fail_fast", [False, True])
def test_each_outcome_of_a_check_is_in_the_report(
    session: TestSession, project: Project, *, fail_fast: bool
) -> None:
    _write_suite(session, project, OUTCOMES)
    (toy,) = run_suites(TARGET, ("toy",), session, TestOptions(fail_fast=fail_fast)).suites
    assert toy.passed == 1
    assert "assert 1 == 2" in toy.failures[0].message
    assert toy.failures[0].reason == "assert 1 == 2"
    assert session.engine.containers("imgbuild.test-of") == []
    failed = [failure.test for failure in toy.failures]
    if fail_fast:
        assert (failed, toy.skips, toy.not_asked) == (["test_failed"], (), ())
        return
    assert toy.skips == (TestSkip("test_skipped", "no driver"),)
    assert toy.not_asked == (TestSkip("test_skipped_in_fixture", "not asked: labels"),)
    assert failed == ["test_failed", "test_clean_up"]
    assert "left behind" in toy.failures[1].message
    junit = (session.reports / TARGET.name / "junit.xml").read_text()
    assert '<testsuite name="tf-2.2-cpu-debian"' in junit


MEETING = """
import pathlib, time

LASTS = 1

def test_it():
    here = pathlib.Path(__file__)
    here.with_suffix(".here").touch()
    end = time.monotonic() + 20
    while len(list(here.parent.glob("*.here"))) < 2:
        assert time.monotonic() < end, "alone"
        time.sleep(0.02)
"""


def test_long_suites_of_an_image_run_side_by_side(session: TestSession, project: Project) -> None:
    """As many at once as there are places; the results of all are in one file of a kind."""
    _write_suite(session, project, MEETING)
    (session.project.suites / "test_twin.py").write_text(MEETING)
    options = TestOptions(slots=threading.Semaphore(2))
    report = run_suites(TARGET, ("toy", "twin"), session, options)
    assert [(one.suite, one.passed) for one in report.suites] == [("toy", 1), ("twin", 1)]
    folder = session.reports / TARGET.name
    assert (folder / "junit.xml").read_text().count('<testsuite name="tf-2.2-cpu-debian"') == 2
    assert (folder / "pytest.txt").read_text().count("1 passed") == 2


@pytest.mark.parametrize("fail_fast", [False, True])
def test_short_suites_share_a_process(
    session: TestSession, project: Project, *, fail_fast: bool
) -> None:
    """Each has its own verdict; with --fail-fast those after the first failure do not begin."""
    body = "import os\ndef test_it(): assert {}, os.getpid()\n"
    _write_suite(session, project, body.format("False"))
    (session.project.suites / "test_twin.py").write_text(body.format("False"))
    (session.project.suites / "test_well.py").write_text(body.format("True"))
    options = TestOptions(fail_fast=fail_fast)
    report = run_suites(TARGET, ("toy", "twin", "well"), session, options)
    toy, *others = report.suites
    if fail_fast:
        assert (toy.suite, others, report.not_begun) == ("toy", [], ("twin", "well"))
        return
    twin, well = others
    assert toy.failures[0].message.splitlines()[-1] == twin.failures[0].message.splitlines()[-1]
    assert (well.passed, well.failures, report.not_begun) == (1, (), ())


@pytest.mark.parametrize(
    "body",
    ["def test_one(:\n", "import no_such_module\n", "import os\ndef test_x(): os._exit(0)\n"],
)
def test_suites_that_cannot_be_run_or_take_too_long_are_no_pass(
    session: TestSession, project: Project, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_suite(session, project, body)
    with pytest.raises(CheckFailedError, match=r"pytest\.txt") as caught:
        run_suites(TARGET, ("toy",), session, TestOptions())
    assert session.engine.containers("imgbuild.test-of") == []
    monkeypatch.setattr(runner, "call_pytest", lambda *_: None)
    with pytest.raises(CheckFailedError, match=r"30 minutes .*pytest\.txt"):
        run_suites(TARGET, ("toy",), session, TestOptions())
    assert "30 minutes" not in str(caught.value)


def test_a_stopped_pytest_may_clean_up(tmp_path: Path) -> None:
    program = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "print('ready', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    time.sleep(1)\n"
        "    print('cleaned', flush=True)\n"
    )
    stop, codes, output = threading.Event(), list[int | None](), tmp_path / "out"
    files = (output, tmp_path / "results")
    call = ([sys.executable, "-c", program], None, files, print, stop)
    thread = threading.Thread(target=lambda: codes.append(call_pytest(*call)))
    thread.start()
    wait_for(lambda: output.exists() and "ready" in output.read_text())
    stop.set()
    thread.join(timeout=10)
    assert (codes, output.read_text()) == ([None], "ready\ncleaned\n")


def test_nothing_that_pytest_started_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a docker client of a suite that hangs, nor a pytest that ignores SIGTERM."""
    pid = tmp_path / "pid"
    program = (
        "import pathlib, signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))\ntime.sleep(300)"
    )
    monkeypatch.setattr(runner, "TIMEOUT_SECONDS", 2)
    monkeypatch.setattr(runner, "CLEANUP_SECONDS", 0.5)
    command = [sys.executable, "-c", program]
    files = (tmp_path / "out", tmp_path / "results")
    assert call_pytest(command, None, files, print, threading.Event()) is None
    wait_for(lambda: not is_running(int(pid.read_text())))
