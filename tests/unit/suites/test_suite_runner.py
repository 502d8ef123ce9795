"""pytest is really run against a container; nothing that it started outlives a run."""

import sys
import threading
import time
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.suites import runner
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import TestSkip
from imgbuild.suites.runner import Stop, SuiteRun, SuitesStoppedError, call_pytest, run_suites

CONFTEST = """
from result_stream import result_stream

def pytest_addoption(parser):
    parser.addoption("--expect")
    parser.addoption("--no-gpu")

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


@pytest.fixture
def engine(images: dict[str, Image]) -> FakeEngine:
    return FakeEngine([StoredImage("sha256:id", images["tf-2.2-cpu-debian"].tags)])


def _checkout(tmp_path: Path, project: Project, body: str) -> Project:
    """Return a checkout whose only suite has ``body`` and needs no container."""
    suites = tmp_path / "checkout" / "tests" / "image"
    suites.mkdir(parents=True)
    (suites / "conftest.py").write_text(CONFTEST)
    (suites / "result_stream.py").symlink_to(project.suites / "result_stream.py")
    (suites / "test_toy.py").write_text(body)
    return Project(tmp_path / "checkout")


def _run(folder: Path, fail_fast: bool = False) -> SuiteRun:
    target = TestTarget("tf-2.2-cpu-debian", "sha256:id", "x", "cpu", {"tensorflow": "2.2.0"})
    return SuiteRun(target, ("toy",), folder, fail_fast=fail_fast)


@pytest.mark.parametrize("fail_fast", [False, True])
def test_each_outcome_of_a_check_is_in_the_report(
    engine: FakeEngine, tmp_path: Path, project: Project, *, fail_fast: bool
) -> None:
    run, checkout = _run(tmp_path / "out", fail_fast), _checkout(tmp_path, project, OUTCOMES)
    (toy,) = run_suites(run, engine, None, checkout).suites
    assert toy.passed == 1
    assert "assert 1 == 2" in toy.failures[0].message
    assert engine.running == {}
    failed = [failure.test for failure in toy.failures]
    if fail_fast:
        assert (failed, toy.skips, toy.not_asked) == (["test_failed"], (), ())
        return
    assert toy.skips == (TestSkip("test_skipped", "no driver"),)
    assert toy.not_asked == (TestSkip("test_skipped_in_fixture", "not asked: labels"),)
    assert failed == ["test_failed", "test_clean_up"]
    assert "left behind" in toy.failures[1].message
    junit = (tmp_path / "out" / "junit.xml").read_text()
    assert '<testsuite name="tf-2.2-cpu-debian"' in junit


@pytest.mark.parametrize(
    "body",
    ["def test_one(:\n", "import no_such_module\n", "import os\ndef test_x(): os._exit(0)\n"],
)
def test_suites_that_cannot_be_run_are_no_pass(
    engine: FakeEngine, tmp_path: Path, project: Project, body: str
) -> None:
    checkout = _checkout(tmp_path, project, body)
    with pytest.raises(CheckFailedError, match=r"could not be run .*pytest\.txt"):
        run_suites(_run(tmp_path / "out"), engine, None, checkout)
    assert engine.running == {}


def test_a_stopped_pytest_may_clean_up(tmp_path: Path) -> None:
    program = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "print('ready', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    raise SystemExit(7)\n"
    )
    stop, codes, output = Stop(), list[int](), tmp_path / "out"
    call = ([sys.executable, "-c", program], None, 1, output, stop)
    thread = threading.Thread(target=lambda: codes.append(call_pytest(*call)))
    thread.start()
    _wait_for(lambda: output.exists() and "ready" in output.read_text())
    stop.stop()
    thread.join(timeout=10)
    assert codes == [7]
    with pytest.raises(SuitesStoppedError):
        stop.check()


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
    assert call_pytest(command, None, 1, tmp_path / "out", Stop()) == -1
    state = Path("/proc", pid.read_text(), "stat")
    _wait_for(lambda: _ended(state))


def _wait_for(condition: "object") -> None:
    deadline = time.monotonic() + 10  # a signalled process takes its time on a busy machine
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _ended(state: Path) -> bool:
    try:
        return state.read_text().split()[2] == "Z"
    except OSError:
        return True
