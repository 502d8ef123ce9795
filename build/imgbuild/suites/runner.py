"""Run pytest against a container of one image, and return its results."""

import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.core import process
from imgbuild.core.errors import CheckFailedError
from imgbuild.core.events import ImageState, Listener, Phase
from imgbuild.core.files import work_folder, write_text
from imgbuild.core.outcome import Outcome
from imgbuild.core.parallel import in_parallel
from imgbuild.core.project import Project
from imgbuild.engine.client import Engine
from imgbuild.suites.catalog import PREFIX, code_digest, group_suites
from imgbuild.suites.container import StartedContainer, TestTarget, suite_container
from imgbuild.suites.results import Check, Report, SuiteResult, suite_result
from imgbuild.suites.store import ReportStore

#: Time limit of one pytest run, in seconds; each command in it has its own limit. Where the image's
#: processor is emulated, both are `EMULATED` times as long.
TIMEOUT_SECONDS, EMULATED = 1800, 10
_EMULATED_OPTION = "--emulated"
#: Time that an interrupted pytest has to remove its containers and networks, in seconds.
CLEANUP_SECONDS = 15.0
#: Interval for reading pytest's results and checking for a stop, in seconds.
STEP_SECONDS = 0.2
#: Environment variable with the file descriptor for pytest's results
#: (tests/image/result_stream.py).
VARIABLE = "IMGBUILD_RESULTS"
JUNIT, OUTPUT = "junit.xml", "pytest.txt"
#: The outcomes of checks that prevent tagging.
_BAD = (Outcome.FAILED, Outcome.TIMED_OUT)
#: pytest's exit codes for "all passed" and "some failed". Any other code means that pytest failed.
_VERDICTS = {0, 1}
_TESTSUITE = re.compile("<testsuite .*?</testsuite>", re.DOTALL)
#: The parameter that testinfra adds to the name of a check, before, between or after others.
_CONTAINER = re.compile(r"-?docker://[0-9a-f]+")


@dataclass(frozen=True)
class TestSession:
    """The engine, the result folders and the options of a test run, for any image.

    - ``suites``: names of the suites to run; empty means all
    - ``rerun``: also run suites that passed before
    - ``fail_fast``: stop at the first failed check
    - ``slots``: limits the parallel pytest processes of all images together
    - ``stop``: when set, all runs end
    """

    __test__ = False  # the name begins with Test, but pytest must not collect it

    project: Project
    engine: Engine
    store: ReportStore
    reports: Path
    listener: Listener
    suites: tuple[str, ...] = ()
    rerun: bool = False
    fail_fast: bool = False
    slots: threading.Semaphore = field(default_factory=threading.Semaphore)
    stop: threading.Event = field(default_factory=threading.Event)


def folder_name(image: str) -> str:
    """Return a folder name for an image's name or reference."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", image)


@dataclass
class CheckStream:
    """The checks of one pytest run, parsed from the JSON lines of its plugin.

    The lines (tests/image/result_stream.py) are ``{"checks": 80}``, ``{"begins": "pins"}``,
    ``{"ended": true}``, and for each finished check its ``suite``, ``test``, ``outcome``,
    ``seconds`` and ``message``. ``milestone`` is called when a suite begins, and if a check fails
    for a new reason. ``step`` is called for every valid line.
    """

    milestone: Callable[[str], None]
    step: Callable[[str], None]
    suite: str = ""
    expected: int = 0
    reported: set[tuple[str, str]] = field(default_factory=set)
    #: Whether pytest finished normally, so that no line is missing.
    finished: bool = False
    #: The checks by suite and outcome, and the seconds of each suite.
    checks: dict[str, dict[str, list[Check]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def read(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # pytest was killed while writing this line
            return
        self.expected += event.get("checks", 0)
        self.finished = self.finished or "ended" in event
        if "outcome" in event:
            test = strip_container(event["test"])
            check = Check(test=test, message=event.get("message", ""))
            self._add(event["suite"], event["outcome"], check, event["seconds"])
        if event.get("begins", self.suite) != self.suite:
            self.suite = event["begins"]
            self.milestone(self.text)
        self.step(self.text)

    def _add(self, suite: str, outcome: str, check: Check, seconds: float = 0.0) -> None:
        self.checks.setdefault(suite, {}).setdefault(outcome, []).append(check)
        self.seconds[suite] = self.seconds.get(suite, 0.0) + seconds
        if outcome in _BAD and (suite, check.reason) not in self.reported:
            self.reported.add((suite, check.reason))
            self.milestone(f"{outcome.upper()} {suite}: {check.test}: {check.reason}")

    @property
    def text(self) -> str:
        """The progress in one line: ``horovod 23/80, 1 failed``."""
        counts: Counter[str] = Counter()
        for outcomes in self.checks.values():
            for outcome, checks in outcomes.items():
                counts[outcome] += len(checks)
        text = f"{self.suite} {counts.total()}/{self.expected}"
        for outcome in _BAD:
            if counts[outcome]:
                text += f", {counts[outcome]} {outcome}"
        return text

    def result(self, suite: str) -> SuiteResult:
        checks = self.checks.get(suite, {})
        return suite_result(
            suite,
            passed=len(checks.get(Outcome.PASSED, [])),
            failures=checks.get(Outcome.FAILED, []),
            timed_out=checks.get(Outcome.TIMED_OUT, []),
            skipped=checks.get(Outcome.SKIPPED, []),
            seconds=self.seconds.get(suite, 0.0),
        )

    def end_late(self, suites: Sequence[str], words: str) -> None:
        """Add a timed-out check to the running suite and all later suites."""
        current = suites.index(self.suite) if self.suite in suites else 0
        for suite in suites[current:]:
            check = Check(test="the whole suite", message=words)
            self._add(suite, Outcome.TIMED_OUT, check)


def strip_container(name: str) -> str:
    """Return a check's name without the container, which does not exist any more after the run."""
    return _CONTAINER.sub("", name).replace("[-", "[").replace("[]", "")


def run_suites(target: TestTarget, suites: tuple[str, ...], session: TestSession) -> Report:
    """Run suites in parallel; write ``junit.xml`` and the output to the session's folder.

    MachineError: there is no docker client, or the engine cannot start the container.
    CheckFailedError: pytest itself failed; the message has the path of its output.
    CancelledError: the run was interrupted.
    """

    def log(text: str) -> None:
        session.listener(ImageState(target.name, Phase.TESTING, text))

    def note(text: str) -> None:
        session.listener(ImageState(target.name, Phase.TESTING, text, quiet=True))

    started = time.monotonic()
    reports = session.reports / folder_name(target.name)
    reports.mkdir(parents=True, exist_ok=True)
    groups = [suites] if session.fail_fast else group_suites(session.project.suites, suites)
    with (
        suite_container(target, session.engine, log) as container,
        work_folder("suites") as folder,
    ):
        expect = folder / "expect.json"
        expected = json.dumps(target.expected)
        expect.write_text(expected, encoding="utf-8")
        command = _pytest_command(target, session, container, expect)

        def run_group(group: tuple[str, ...]) -> list[SuiteResult]:
            stream = CheckStream(log, note)
            code = _run_group(group, command, folder, session, stream)
            if code is None:
                minutes = time_limit(command) // 60
                stream.end_late(group, f"it did not end within {minutes} minutes and was stopped")
            elif code not in _VERDICTS or not stream.finished:
                raise CheckFailedError(
                    f"{', '.join(group)} of {target.name} could not be run (pytest exit code "
                    f"{code}). Read the output in {reports / OUTPUT}. If the disk is full, free "
                    "some space."
                )
            # A suite without results counts as failed, unless an earlier failure ended the run.
            is_cut = session.fail_fast and stream.reported
            return [stream.result(suite) for suite in group if suite in stream.checks or not is_cut]

        try:
            group_results = in_parallel(run_group, groups, len(groups), grace=None)
        finally:
            _write_output(folder, reports)
    results: dict[str, SuiteResult] = {}
    for group in group_results:
        results |= {result.suite: result for result in group}
    return Report(
        image=target.name,
        image_id=target.image_id,
        code_digest=code_digest(session.project.suites),
        suites=tuple(results[suite] for suite in suites if suite in results),
        not_begun=tuple(suite for suite in suites if suite not in results),
        seconds=time.monotonic() - started,
    )


def _pytest_command(
    target: TestTarget, session: TestSession, container: StartedContainer, expect: Path
) -> list[str]:
    """Return the pytest command for a container; the caller appends the files of the suites."""
    command = [
        # Import nothing from the current folder, and ignore settings of a project around it.
        *(sys.executable, "-P", "-m", "pytest", "-c", os.devnull),
        *("-q", "-p", "no:cacheprovider"),
        *("-p", "testinfra.plugin"),  # other plugins of this machine are not loaded
        "--tb=short",  # longer ones show a test's arguments, which can list all files of an image
        *(f"--rootdir={session.project.root}", f"--hosts=docker://{container.id}"),
        # Without this option, pytest runs the conftest.py of every folder above the checkout.
        f"--confcutdir={session.project.suites}",
        *(f"--expect={expect}", "-o", f"junit_suite_name={target.name}"),
        *("-o", "junit_family=xunit1"),  # xunit2 cannot store the properties of a check
    ]
    if session.fail_fast:
        command.append("--exitfirst")
    if container.no_gpu:
        command.append(f"--no-gpu={container.no_gpu}")
    if container.offered:
        command.append("--gpus-offered")
    if container.emulated:
        command.append(_EMULATED_OPTION)
    return command


def _run_group(
    group: tuple[str, ...],
    command: Sequence[str],
    folder: Path,
    session: TestSession,
    stream: CheckStream,
) -> int | None:
    """Wait for a slot, run suites in one pytest, and return the result of `call_pytest`."""
    name = group[0]
    tests = [str(session.project.suites / f"{PREFIX}{suite}.py") for suite in group]
    whole_command = [*command, f"--junitxml={folder / name}.xml", *tests]
    files = (folder / f"{name}.txt", folder / name)
    host, stop = session.engine.host, session.stop
    code = None
    with session.slots:
        if not stop.is_set():
            code = call_pytest(whole_command, host, files, stream.read, stop)
    if stop.is_set():
        raise CancelledError
    return code


def _write_output(folder: Path, reports: Path) -> None:
    """Merge the output of all pytest processes, and their JUnit files."""

    def joined(pattern: str) -> str:
        files = sorted(folder.glob(pattern))
        return "".join(file.read_text("utf-8", "replace") for file in files)

    write_text(reports / OUTPUT, joined("*.txt"))
    suites = "".join(_TESTSUITE.findall(joined("*.xml")))
    write_text(reports / JUNIT, f'<?xml version="1.0"?><testsuites>{suites}</testsuites>\n')


def time_limit(command: Sequence[str]) -> int:
    """Return the time limit of a pytest command in seconds."""
    return TIMEOUT_SECONDS * (EMULATED if _EMULATED_OPTION in command else 1)


def call_pytest(
    command: Sequence[str],
    host: str | None,
    files: tuple[Path, Path],
    read: Callable[[str], None],
    stop: threading.Event,
) -> int | None:
    """Run pytest; return its exit code, or None if it timed out or was stopped.

    No process is left behind. ``files`` are the paths for its output and its results. ``read`` is
    called with each line of the results.
    """
    end = time.monotonic() + time_limit(command)
    code: int | None = None
    output_path, results_path = files
    with (
        output_path.open("w", encoding="utf-8") as output,
        results_path.open("w", encoding="utf-8") as results,
        results_path.open(encoding="utf-8", errors="replace") as written,
    ):
        environment = dict(os.environ)
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        environment[VARIABLE] = str(results.fileno())
        if host:
            environment["DOCKER_HOST"] = host
        # Send SIGTERM only to pytest, because it needs its docker clients to clean up.
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
