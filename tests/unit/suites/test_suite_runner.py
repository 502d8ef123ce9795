"""pytest is really run against a container; nothing that it started outlives a run."""

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError
from imgbuild.core.outcome import Outcome
from imgbuild.core.project import Project
from imgbuild.engine.types import StoredImage
from imgbuild.suites import runner
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import Check
from imgbuild.suites.runner import (
    CheckStream,
    TestSession,
    call_pytest,
    run_suites,
)
from imgbuild.suites.store import ReportStore
from support.fake_engine import EngineOn, FakeEngine, OfferingEngine
from support.waiting import is_running, wait_for

TARGET = TestTarget("tf-2.2-cpu-debian", "sha256:id", "x", "cpu", {"tensorflow": "2.2.0"})
CONFTEST = """
from result_stream import result_stream

def pytest_addoption(parser):
    parser.addoption("--expect")
    parser.addoption("--no-gpu")
    parser.addoption("--gpus-offered", action="store_true")
    parser.addoption("--emulated", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(result_stream())
"""


def test_progress_is_shown_by_suite_and_reason_of_failure() -> None:
    """A second failure with the same reason is no news; a line that is cut is none.

    The container is no part of a check's name.
    """
    milestones: list[str] = []
    stream = CheckStream(milestones.append, print)
    check = {"suite": "pins", "outcome": "failed", "seconds": 1, "message": "no"}
    names = ["test_a[docker://0af9-git]", "test_b", "test_c[docker://0af9]"]
    names += ["test_d[mpirun-docker://0af9-float32]"]
    checks = [{**check, "test": name} for name in names]
    passed = {**checks[0], "outcome": "passed"}
    for event in ({"checks": 5}, {"begins": "pins"}, passed, *checks):
        stream.read(json.dumps(event))
    stream.read('{"ended')
    assert not stream.finished
    assert [line for line in milestones if "FAILED" in line] == ["FAILED pins: test_a[git]: no"]
    shown = ["test_a[git]", "test_a[git]", "test_b", "test_c", "test_d[mpirun-float32]"]
    assert stream.result("pins").passed == 1
    assert [check.test for check in stream.result("pins").failures] == shown[1:]


@pytest.fixture
def session(tmp_path: Path, project: Project) -> TestSession:
    """Give a checkout without suites, which need no container here."""
    checkout, store = Project(tmp_path / "checkout"), ReportStore(tmp_path / "store")
    checkout.suites.mkdir(parents=True)
    (checkout.suites / "conftest.py").write_text(CONFTEST)
    for name in ("result_stream.py", "out_of_time.py"):
        (checkout.suites / name).symlink_to(project.suites / name)
    engine = FakeEngine([StoredImage("sha256:id")])
    return TestSession(checkout, engine, store, tmp_path / "out", lambda _: None)


def _write(session: TestSession, **suites: str) -> None:
    for name, body in suites.items():
        (session.project.suites / f"test_{name}.py").write_text(body)


TELLS = """
import pytest

def test_it(pytestconfig):
    pytest.fail(str((pytestconfig.getoption("gpus_offered"), pytestconfig.getoption("no_gpu"))))
"""


def test_the_suites_are_told_whether_the_engine_offers_gpus(session: TestSession) -> None:
    _write(session, toy=TELLS)
    gpu, none = replace(TARGET, variant="gpu"), (False, "the engine offers none to containers")
    for kind, told in ((FakeEngine, none), (OfferingEngine, (True, None))):
        session = replace(session, engine=kind([StoredImage("sha256:id")]))
        (toy,) = run_suites(gpu, ("toy",), session).suites
        assert toy.failures[0].reason.endswith(str(told))


EMULATED = """
import pytest

def test_it(pytestconfig):
    pytest.fail(str(pytestconfig.getoption("emulated")))
"""


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_the_suites_are_told_whether_the_processor_is_emulated(
    session: TestSession, machine: str, platform: str
) -> None:
    """Only the facts about images for another platform than amd64 name theirs."""
    _write(session, toy=EMULATED)
    named = {} if platform == "linux/amd64" else {"platform": platform}
    target = replace(TARGET, expected={**TARGET.expected, **named})
    session = replace(session, engine=EngineOn(machine, [StoredImage("sha256:id")]))
    (toy,) = run_suites(target, ("toy",), session).suites
    own = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[machine]
    assert toy.failures[0].reason.endswith(str(platform != own))


def test_an_emulated_image_may_take_ten_times_as_long() -> None:
    usual = ["pytest", "--gpus-offered"]
    assert runner.time_limit([*usual, "--emulated"]) == 10 * runner.time_limit(usual)


OUTCOMES = """
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError("left behind")

@pytest.fixture
def skipping():
    pytest.skip("no GPU")

def test_passed(): pass
def test_failed(): assert 1 == 2
def test_skipped(): pytest.skip("no driver")
def test_skipped_in_fixture(skipping): pass
def test_clean_up(broken): pass
"""


def test_each_outcome_of_a_check_is_in_the_report(session: TestSession) -> None:
    _write(session, toy=OUTCOMES)
    (toy,) = run_suites(TARGET, ("toy",), session).suites
    assert toy.passed == 1
    reasons = {"test_skipped": "no driver", "test_skipped_in_fixture": "no GPU"}
    assert toy.skipped == tuple(
        Check(test=test, message=reason) for test, reason in reasons.items()
    )
    failed, left = toy.failures
    assert (failed.test, failed.reason) == ("test_failed", "assert 1 == 2")
    assert (left.test, "left behind" in left.message) == ("test_clean_up", True)
    assert session.engine.containers("imgbuild.test-of") == []


def test_suites_run_no_code_above_their_folder(session: TestSession) -> None:
    """A checkout may be below a folder that others can write, such as /tmp."""
    _write(session, toy="def test_it(): pass\n")
    root = session.project.root
    for folder in (root.parent, root, root / "tests"):
        (folder / "conftest.py").write_text("raise SystemExit(1)\n")
    (toy,) = run_suites(TARGET, ("toy",), session).suites
    assert (toy.passed, toy.failures) == (1, ())


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


def test_long_suites_of_an_image_run_side_by_side(session: TestSession) -> None:
    """As many at once as there are places; the results of all are in one file of a kind."""
    _write(session, toy=MEETING, twin=MEETING)
    session = replace(session, slots=threading.Semaphore(2))
    report = run_suites(TARGET, ("toy", "twin"), session)
    assert [(one.suite, one.passed) for one in report.suites] == [("toy", 1), ("twin", 1)]
    folder = session.reports / TARGET.name
    assert (folder / "junit.xml").read_text().count('<testsuite name="tf-2.2-cpu-debian"') == 2
    assert (folder / "pytest.txt").read_text().count("1 passed") == 2


@pytest.mark.parametrize("fail_fast", [False, True])
def test_short_suites_share_a_process(session: TestSession, *, fail_fast: bool) -> None:
    """Each has its own verdict; with --fail-fast those after the first failure do not begin."""
    body = "import os\ndef test_it(): assert {}, os.getpid()\n"
    _write(session, toy=body.format(False), twin=body.format(False), well=body.format(True))
    session = replace(session, fail_fast=fail_fast)
    report = run_suites(TARGET, ("toy", "twin", "well"), session)
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
    ids=["syntax", "import", "exit"],
)
def test_suites_that_cannot_be_run_are_no_pass(session: TestSession, body: str) -> None:
    _write(session, toy=body)
    with pytest.raises(CheckFailedError, match=r"pytest exit code.*pytest\.txt"):
        run_suites(TARGET, ("toy",), session)
    assert session.engine.containers("imgbuild.test-of") == []


def test_suites_that_take_too_long_are_no_pass(
    session: TestSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended before keeps its verdict."""
    check = {"suite": "toy", "test": "test_it", "outcome": "passed", "seconds": 1}
    events = ({"begins": "toy"}, check, {"begins": "twin"})

    def call(_command: object, _host: object, _files: object, read: Any, _stop: object) -> None:
        for event in events:
            read(json.dumps(event))

    monkeypatch.setattr(runner, "call_pytest", call)
    session = replace(session, fail_fast=True)
    report = run_suites(TARGET, ("toy", "twin", "well"), session)
    verdicts = [one.verdict for one in report.suites]
    assert verdicts == [Outcome.PASSED, Outcome.TIMED_OUT, Outcome.TIMED_OUT]
    assert "30 minutes" in report.suites[1].problem


LATE = """
from out_of_time import out_of_time

def test_passed(): pass
def test_late(): out_of_time("waited for b")
"""


def test_check_that_ran_out_of_time_has_not_failed(session: TestSession) -> None:
    _write(session, toy=LATE)
    report = run_suites(TARGET, ("toy",), session)
    (toy,) = report.suites
    assert (toy.passed, toy.failures, report.ok) == (1, (), False)
    assert toy.problem == "test_late: ran out of time: waited for b"


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
