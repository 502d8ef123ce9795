"""Run pytest against a container of one image, and return its results."""

import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild import process
from imgbuild.engine.client import Engine
from imgbuild.errors import CheckFailedError
from imgbuild.events import ImageState, Listener, State
from imgbuild.files import work_folder, write_text
from imgbuild.parallel import in_parallel
from imgbuild.project import Project
from imgbuild.suites.catalog import PREFIX, code_digest, side_by_side
from imgbuild.suites.container import TestTarget, suite_container
from imgbuild.suites.results import (
    Report,
    ReportStore,
    SuiteResult,
    TestFailure,
    TestSkip,
    Verdict,
)

#: The longest any set of suites may take, in seconds; each command inside has its own limit.
TIMEOUT_SECONDS = 1800
#: How long an interrupted pytest may take to remove what its suites started, in seconds.
CLEANUP_SECONDS = 15.0
#: How often it is looked what a running pytest wrote, and whether it is to stop, in seconds.
STEP_SECONDS = 0.2
#: Holds the number of the descriptor that pytest writes its results to
#: (tests/image/result_stream.py).
VARIABLE = "IMGBUILD_RESULTS"
JUNIT, OUTPUT = "junit.xml", "pytest.txt"
_FAILED, _LATE = Verdict.FAILED, Verdict.TIMED_OUT
#: The outcomes of checks that keep an image from being tagged.
_BAD = (_FAILED, _LATE)
#: pytest's exit codes for "all passed" and "some failed": the only ones with a verdict.
_VERDICTS = {0, 1}
_TESTSUITE = re.compile("<testsuite .*?</testsuite>", re.DOTALL)
#: testinfra's parameter, which is between or beside those of the checks.
_CONTAINER = re.compile(r"-?docker://[0-9a-f]+")


@dataclass(frozen=True)
class TestOptions:
    """Which suites, none for all; ``rerun`` those too that passed before.

    ``fail_fast`` ends a run with the first failed check. As many suites run at once, of all images
    together, as there are ``slots``. When ``stop`` is set, all runs end.
    """

    __test__ = False  # the name begins with Test, but pytest must not collect it

    suites: tuple[str, ...] = ()
    rerun: bool = False
    fail_fast: bool = False
    slots: threading.Semaphore = field(default_factory=threading.Semaphore)
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class TestSession:
    """What a test of any image needs: the suites, the engine, and where results go."""

    __test__ = False

    project: Project
    engine: Engine
    store: ReportStore
    reports: Path
    listener: Listener


def folder_name(image: str) -> str:
    """Return an image's name or reference as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", image)


@dataclass(frozen=True)
class Check:
    """One check that has ended.

    ``outcome`` is ``passed``, ``failed``, ``timed out`` or ``skipped``.
    """

    suite: str
    test: str
    outcome: str
    seconds: float
    message: str = ""


@dataclass
class CheckStream:
    """The checks of one pytest run, from the lines of JSON that its plugin writes.

    The lines are ``{"checks": 80}``, ``{"begins": "pins"}``, one `Check` for each that ended, and
    ``{"ended": true}`` (tests/image/result_stream.py). ``milestone`` gets suites that begin and
    the first failure of each reason, ``step`` every change.
    """

    milestone: Callable[[str], None]
    step: Callable[[str], None]
    suite: str = ""
    expected: int = 0
    reported: set[tuple[str, str]] = field(default_factory=set)
    #: Whether pytest ended by itself, so that no line is missing.
    finished: bool = False
    checks: list[Check] = field(default_factory=list)

    def read(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # the line that a kill cut off
            return
        self.expected += event.get("checks", 0)
        self.finished = self.finished or "ended" in event
        if "outcome" in event:
            self._add(Check(**{**event, "test": check_name(event["test"])}))
        if event.get("begins", self.suite) != self.suite:
            self.suite = event["begins"]
            self.milestone(self.text)
        self.step(self.text)

    def _add(self, check: Check) -> None:
        self.checks.append(check)
        if check.outcome in _BAD:
            reason = TestFailure(check.test, check.message).reason
            if (check.suite, reason) not in self.reported:
                self.reported.add((check.suite, reason))
                word = check.outcome.upper()
                self.milestone(f"{word} {check.suite}: {check.test}: {reason}")

    @property
    def text(self) -> str:
        """Return what a line shows: ``horovod 23/80, 1 failed``."""
        outcomes = Counter(check.outcome for check in self.checks)
        bad = "".join(f", {outcomes[word]} {word}" for word in _BAD if outcomes[word])
        return f"{self.suite} {len(self.checks)}/{self.expected}{bad}"

    def end_late(self, suites: Sequence[str], words: str) -> None:
        """Add a check that ran out of time for the running suite, and for those after it."""
        current = suites.index(self.suite) if self.suite in suites else 0
        for suite in suites[current:]:
            self._add(Check(suite, "the whole suite", _LATE, 0.0, words))


def check_name(name: str) -> str:
    """Return a check's name without the container, which is gone when the name is read."""
    return _CONTAINER.sub("", name).replace("[-", "[").replace("[]", "")


def suite_result(suite: str, checks: Iterable[Check]) -> SuiteResult:
    own = [check for check in checks if check.suite == suite]
    return SuiteResult(
        suite,
        sum(check.outcome == "passed" for check in own),
        tuple(TestFailure(c.test, c.message) for c in own if c.outcome == _FAILED),
        tuple(TestSkip(c.test, c.message) for c in own if c.outcome == "skipped"),
        sum(check.seconds for check in own),
        timed_out=tuple(TestFailure(c.test, c.message) for c in own if c.outcome == _LATE),
    )


def run_suites(
    target: TestTarget, suites: tuple[str, ...], session: TestSession, options: TestOptions
) -> Report:
    """Run these suites side by side; one ``junit.xml`` and the output are in the session's folder.

    MachineError: no docker client, or the engine cannot start the container.
    CheckFailedError: pytest itself failed; the path of its output is given.
    CancelledError: the run was interrupted.
    """

    def log(text: str) -> None:
        session.listener(ImageState(target.name, State.TESTING, text))

    def note(text: str) -> None:
        session.listener(ImageState(target.name, State.TESTING, text, quiet=True))

    started = time.monotonic()
    reports = session.reports / folder_name(target.name)
    reports.mkdir(parents=True, exist_ok=True)
    with (
        suite_container(target, session.engine, log) as container,
        work_folder("suites") as folder,
    ):
        expect = folder / "expect.json"
        expect.write_text(json.dumps(target.expected), encoding="utf-8")
        command = (
            # Nothing of the folder that imgbuild runs in, and no settings of a project around it.
            *(sys.executable, "-P", "-m", "pytest", "-c", os.devnull),
            *("-q", "-p", "no:cacheprovider"),
            *("-p", "testinfra.plugin"),  # and none that this machine happens to have
            "--tb=short",  # the arguments of a test can be the whole list of an image's files
            *(f"--rootdir={session.project.root}", f"--hosts=docker://{container.id}"),
            # Without it, pytest runs the conftest.py of every folder above the checkout.
            f"--confcutdir={session.project.suites}",
            *(f"--expect={expect}", "-o", f"junit_suite_name={target.name}"),
            *("-o", "junit_family=xunit1"),  # xunit2 has no place for what a check records
            *(["--exitfirst"] if options.fail_fast else []),
            *([f"--no-gpu={container.no_gpu}"] if container.no_gpu else []),
            *(["--gpus-offered"] if container.offered else []),
        )

        def checks_of(group: tuple[str, ...]) -> list[Check]:
            stream = CheckStream(log, note)
            tests = (str(session.project.suites / f"{PREFIX}{suite}.py") for suite in group)
            own = (*command, f"--junitxml={folder / group[0]}.xml", *tests)
            files = (folder / f"{group[0]}.txt", folder / group[0])
            with options.slots:
                code = None
                if not options.stop.is_set():
                    code = call_pytest(own, session.engine.host, files, stream.read, options.stop)
            if options.stop.is_set():
                raise CancelledError
            if code is None:
                minutes = TIMEOUT_SECONDS // 60
                stream.end_late(group, f"it did not end within {minutes} minutes and was stopped")
            elif code not in _VERDICTS or not stream.finished:
                raise CheckFailedError(
                    f"{', '.join(group)} of {target.name} could not be run (pytest exit code "
                    f"{code}). The output is in {reports / OUTPUT}. If the disk is full, free "
                    "space there."
                )
            return stream.checks

        groups = [suites] if options.fail_fast else side_by_side(session.project.suites, suites)
        try:
            found = in_parallel(checks_of, groups, len(groups), grace=None)
        finally:
            texts, documents = (
                "".join(file.read_text("utf-8", "replace") for file in sorted(folder.glob(kind)))
                for kind in ("*.txt", "*.xml")
            )
            write_text(reports / OUTPUT, texts)
            each = "".join(_TESTSUITE.findall(documents))
            write_text(reports / JUNIT, f'<?xml version="1.0"?><testsuites>{each}</testsuites>\n')
    checks = [check for each in found for check in each]
    cut = options.fail_fast and any(check.outcome in _BAD for check in checks)
    reached = {check.suite for check in checks} if cut else {*suites}
    return Report(
        target.name,
        target.image_id,
        code_digest(session.project.suites),
        # A suite without any check has passed nothing.
        tuple(suite_result(name, checks) for name in suites if name in reached),
        not_begun=tuple(name for name in suites if name not in reached),
        seconds=time.monotonic() - started,
    )


def call_pytest(
    command: Sequence[str],
    host: str | None,
    files: tuple[Path, Path],
    read: Callable[[str], None],
    stop: threading.Event,
) -> int | None:
    """Return the exit code; ``None`` if it took too long or was stopped. No process is left behind.

    ``files`` are for its output and its results; ``read`` gets each line of the results.
    """
    end = time.monotonic() + TIMEOUT_SECONDS
    code: int | None = None
    with (
        files[0].open("w", encoding="utf-8") as output,
        files[1].open("w", encoding="utf-8") as results,
        files[1].open(encoding="utf-8", errors="replace") as written,
    ):
        environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            VARIABLE: str(results.fileno()),
            **({"DOCKER_HOST": host} if host else {}),
        }
        # SIGTERM goes to pytest alone: it needs its docker clients to remove what there is.
        with process.start(
            command,
            env=environment,
            output=output,
            pass_fds=(results.fileno(),),
            grace=CLEANUP_SECONDS,
            leader_first=True,
        ) as pytest:
            line = ""
            while code is None and not stop.is_set() and time.monotonic() < end:
                with suppress(process.TimeoutExpired):
                    code = pytest.wait(STEP_SECONDS)
                while part := written.readline():
                    line += part  # the last line may still be written
                    if line.endswith("\n"):
                        read(line)
                        line = ""
    return code
