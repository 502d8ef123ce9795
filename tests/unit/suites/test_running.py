"""Running suites: progress, stopping, several images side by side, and the files of a run."""

import json
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.cli.test_tables import failure_lines, report_lines
from imgbuild.errors import CheckFailedError
from imgbuild.suites import stopping
from imgbuild.suites.examine import How
from imgbuild.suites.files import write_report, write_run
from imgbuild.suites.junit import read_junit
from imgbuild.suites.progress import Progress, pipe_to
from imgbuild.suites.report import Report, SuiteResult, TestFailure, TestSkip
from imgbuild.suites.run import Call
from imgbuild.suites.stopping import Stop, StoppedError
from imgbuild.suites.subject import Subject
from imgbuild.suites.summary import summary
from imgbuild.suites.together import examine_together

PASSED = SuiteResult("pins", 3, (), (), 1.0)
FAILED = SuiteResult("horovod", 2, (TestFailure("test_x[mpirun]", "a\n```\nb"),), (), 1.0)
BEFORE = SuiteResult("tensorflow", 6, (), (), 9.0, before="2026-01-01T00:00:00Z")
SKIPPED = SuiteResult("gpu_runs", 0, (), (TestSkip("test_x", "no | driver"),) * 2, 0.1)
UNASKED = SuiteResult("contents", 1, (), (), 0.1, (TestSkip("test_y", "not asked: labels"),))


def test_progress_is_told_by_suite_and_failure() -> None:
    milestones: list[str] = []
    steps: list[str] = []
    with pipe_to(Progress(milestones.append, steps.append).told) as pipe:
        program = f"""
import os, json
for news in (dict(checks=3), dict(begins="pins"), dict(done=1), dict(begins="pins"), dict(done=1),
             dict(failed="pins: test_a[docker://0af9-git]"), dict(begins="horovod")):
    os.write({pipe}, (json.dumps(news) + "\\n").encode())
os.write({pipe}, b'{{"done"')
"""
        subprocess.run([sys.executable, "-c", program], pass_fds=(pipe,), check=True)
    assert milestones == ["pins 0/3", "FAILED pins: test_a[git]", "horovod 2/3, 1 failed"]
    assert steps[-1] == "horovod 2/3, 1 failed"


def test_the_suites_tell_what_progress_reads() -> None:
    from telling import VARIABLE, Teller, suite_of

    from imgbuild.suites import progress

    assert progress.VARIABLE == VARIABLE
    assert suite_of("tests/image/test_pins.py::test_pin[docker://0-git]") == "pins"
    steps: list[str] = []
    with pipe_to(Progress(steps.append, steps.append).told) as pipe:
        teller = Teller(pipe)
        teller._tell(checks=2)
        teller.pytest_runtest_logstart("tests/image/test_pins.py::test_a")
        teller.pytest_runtest_logfinish()
    assert steps[-1] == "pins 1/2"


SLOW = "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    {}\n"
INTERRUPTED = "import signal\nsignal.signal(signal.SIGTERM, signal.default_int_handler)\n"


def _stopped(program: str, tmp_path: Path) -> tuple[int, float]:
    """Return exit code and seconds of a program that is stopped from another thread."""
    stop, codes = Stop(), []
    call = Call([sys.executable, "-c", program])
    thread = threading.Thread(target=lambda: codes.append(call.run(tmp_path / "out", stop)))
    thread.start()
    time.sleep(1)
    started = time.monotonic()
    stop.stop()
    thread.join()
    with pytest.raises(StoppedError):
        stop.check()
    return codes[0], time.monotonic() - started


def test_a_stopped_pytest_may_clear_up(tmp_path: Path) -> None:
    code, seconds = _stopped(INTERRUPTED + SLOW.format("raise SystemExit(7)"), tmp_path)
    assert code == 7
    assert seconds < 5


def test_a_pytest_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("imgbuild.suites.run.TIMEOUT_SECONDS", 1.0)
    program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"
    started = time.monotonic()
    assert Call([sys.executable, "-c", program]).run(tmp_path / "out", Stop()) == -1
    assert time.monotonic() - started < 10


def _subject(name: str) -> Subject:
    return Subject(name, f"sha256:{name}", name, "cpu", {})


def _report(name: str, *suites: SuiteResult, **more: tuple[str, ...]) -> Report:
    return Report(name, f"sha256:{name}", "sha256:code", suites, **more)  # type: ignore[arg-type]


def _examine(bad: str, seen: list[str]) -> Callable[[Subject], Report]:
    def examine(subject: Subject) -> Report:
        seen.append(subject.name)
        time.sleep(0.1)
        return _report(subject.name, FAILED if subject.name == bad else PASSED)

    return examine


def test_images_are_tested_side_by_side_and_told_in_order() -> None:
    gate = threading.Barrier(2, timeout=10)

    def examine(subject: Subject) -> Report:
        gate.wait()  # fails unless two are at it
        return _report(subject.name, PASSED)

    outcomes = examine_together([_subject(name) for name in "ab"], examine, How(), 2)
    assert [report.image for report in outcomes.reports] == ["a", "b"]


def test_after_a_failure_no_further_image_is_begun_where_that_is_wanted() -> None:
    subjects, seen = [_subject(name) for name in "abcd"], list[str]()
    outcomes = examine_together(subjects, _examine("a", seen), How(fail_fast=True), 1)
    assert outcomes.not_begun[-2:] == ["c", "d"]
    assert outcomes.reports[0].image == "a"
    seen.clear()
    examine_together(subjects, _examine("a", seen), How(), 1)
    assert seen == ["a", "b", "c", "d"]


def test_an_image_that_cannot_be_tested_keeps_no_other_from_it() -> None:
    def examine(subject: Subject) -> Report:
        if subject.name == "a":
            raise CheckFailedError("pytest is broken")
        return _report(subject.name, PASSED)

    outcomes = examine_together([_subject(name) for name in "ab"], examine, How(), 1)
    assert [*outcomes.errors] == ["a"]
    assert [report.image for report in outcomes.reports] == ["b"]


def test_an_interrupt_stops_all_and_waits_for_them() -> None:
    how, ended = How(), list[str]()

    def examine(subject: Subject) -> Report:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                how.stop.check()
            except StoppedError:
                ended.append(subject.name)
                raise
            time.sleep(0.02)
        return _report(subject.name, PASSED)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            examine_together([_subject(name) for name in "abc"], examine, how, 2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert sorted(ended) == ["a", "b"]


CASE = '<testcase classname="tests.image.test_{}" name="{}[docker://0af9-x]" time="1">{}</testcase>'


def _junit(folder: Path) -> None:
    folder.mkdir(parents=True)
    cases = CASE.format("pins", "test_a", "") + CASE.format("horovod", "test_b", "<failure/>")
    (folder / "junit.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def test_the_files_of_a_run(tmp_path: Path) -> None:
    one, two = _report("one", PASSED, FAILED), _report("two", BEFORE)
    _junit(tmp_path / "one")
    for report in (one, two):
        write_report(report, tmp_path / report.image)
    pairs = [(report, tmp_path / report.image) for report in (one, two)]
    write_run(pairs, {"three": "no disk"}, tmp_path)
    assert json.loads((tmp_path / "one" / "report.json").read_text()) == one.as_json()
    assert len(json.loads((tmp_path / "report.json").read_text())) == 2
    root = ET.parse(tmp_path / "junit.xml").getroot()  # noqa: S314
    cases = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert cases == [("one.test_pins", "test_a[x]"), ("one.test_horovod", "test_b[x]")]
    (when,) = [p.get("value") for p in root.iter("property") if p.get("name") == "passed_before"]
    assert when == BEFORE.before
    again = read_junit(tmp_path / "one" / "junit.xml", ("pins", "horovod"))
    assert [(r.passed, len(r.failures)) for r in again] == [(1, 0), (0, 1)]
    assert "three" in (tmp_path / "summary.md").read_text()


def test_a_suite_that_was_not_begun_has_no_result(tmp_path: Path) -> None:
    _junit(tmp_path / "one")
    names = ("pins", "horovod", "tensorboard")
    found = read_junit(tmp_path / "one" / "junit.xml", names, whole=False)
    assert [result.suite for result in found] == ["pins", "horovod"]


def test_the_summary_has_a_column_an_image_and_the_reasons() -> None:
    text = summary(
        [
            _report("one", PASSED, FAILED, SKIPPED, not_begun=("tensorboard",)),
            _report("two", UNASKED, BEFORE, not_given=("labels",)),
        ],
        {"three": "the engine\nhas no room"},
    )
    assert "## imgbuild test: 1 of 3 images passed" in text
    assert "| suite | `one` | `two` |" in text
    assert "| `pins` | ✅ passed, 3 checks, 1.0 s |  |" in text
    assert "| `horovod` | ❌ failed, 3 checks, 1 failed, 1.0 s |  |" in text
    assert "| `tensorflow` |  | ✅ passed before (2026-01-01T00:00:00Z), 6 checks |" in text
    assert "✅ passed, 1 check, 1 not asked, 0.1 s" in text
    assert "`one` horovod: `test_x[mpirun]`\n\n````\na\n```\nb\n````" in text
    assert "- `one` gpu_runs: 2 skipped: no \\| driver" in text
    assert "- `two`: not asked, for nobody said what to expect: labels" in text
    assert "- `one`: not begun after the first failure: tensorboard" in text
    assert "- `three`: the engine has no room" in text
    table = [line.count("|") for line in text.splitlines() if line.startswith("| `")]
    assert set(table) == {4}


def test_the_table_says_what_was_not_run_again() -> None:
    text = report_lines([_report("two", BEFORE, PASSED)], ["later"])
    rows = [line.split() for line in text.splitlines()]
    assert ["two", "tensorflow", "passed", "before", "6", "0", "0", "-"] in rows
    assert ["two", "pins", "passed", "3", "0", "0", "1.0"] in rows
    assert "--rerun" in text
    assert "Not begun after the first failure: later" in text
    assert failure_lines(_report("one", FAILED)) == "one: horovod: test_x[mpirun]: a\n```\nb"
