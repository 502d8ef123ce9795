"""Run pytest against a container of one image, and return its results."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild import process
from imgbuild.engine.client import Engine
from imgbuild.errors import CheckFailedError
from imgbuild.files import work_folder
from imgbuild.project import Project
from imgbuild.suites.catalog import PREFIX, code_digest
from imgbuild.suites.container import StartedContainer, TestTarget, suite_container
from imgbuild.suites.results import CheckStream, Report, suite_results

#: The longest any set of suites may take, in seconds; each command inside has its own limit.
TIMEOUT_SECONDS = 1800
#: How long an interrupted pytest may take to remove what its suites started, in seconds.
CLEANUP_SECONDS = 15.0
#: Holds the number of the descriptor that pytest writes its results to
#: (tests/image/result_stream.py).
VARIABLE = "IMGBUILD_RESULTS"
JUNIT, OUTPUT = "junit.xml", "pytest.txt"
#: pytest's exit codes for "all passed" and "some failed": the only ones with a verdict.
_VERDICTS = {0, 1}


class SuitesStoppedError(Exception):
    """The run was interrupted while this image was tested."""


class Stop:
    """Knows the processes of a run, and can end them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[process.Process] = set()
        self._stopped = False

    def check(self) -> None:
        """Raise `SuitesStoppedError` if the run was stopped."""
        if self._stopped:
            raise SuitesStoppedError

    def stop(self) -> None:
        """Ask every process to end, and let none begin."""
        with self._lock:
            self._stopped = True
            for running in self._running:
                running.terminate()

    @contextmanager
    def guarding(self, started: process.Process) -> Iterator[None]:
        """Let `stop` end a process as long as the block lasts."""
        with self._lock:
            self._running.add(started)
            if self._stopped:
                started.terminate()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(started)


@dataclass(frozen=True)
class SuiteRun:
    """Which suites to run in which image, and where the results go.

    ``log`` gets milestones, ``step`` every check.
    """

    target: TestTarget
    suites: tuple[str, ...]
    folder: Path
    fail_fast: bool = False
    log: Callable[[str], None] = lambda _: None
    step: Callable[[str], None] = lambda _: None
    stop: Stop = field(default_factory=Stop)


def run_suites(run: SuiteRun, engine: Engine, host: str | None, project: Project) -> Report:
    """Return the results; pytest's ``junit.xml`` and output are in ``run.folder``.

    Raises:
        MachineError: no docker client, or the engine cannot start the container.
        CheckFailedError: pytest itself failed; the path of its output is given.
        SuitesStoppedError: the run was interrupted.

    """
    run.stop.check()
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / JUNIT).unlink(missing_ok=True)
    started = time.monotonic()
    stream = CheckStream(run.log, run.step)
    with suite_container(run.target, engine, run.log) as container:
        _run_pytest(run, container, host, project, stream)
    results = suite_results(stream.checks, run.suites, whole=not run.fail_fast)
    begun = {result.suite: result for result in results}
    return Report(
        run.target.name,
        run.target.image_id,
        code_digest(project.suites),
        tuple(begun[name] for name in run.suites if name in begun),
        container.offered,
        not_begun=tuple(name for name in run.suites if name not in begun),
        seconds=time.monotonic() - started,
    )


def _run_pytest(
    run: SuiteRun,
    container: StartedContainer,
    host: str | None,
    project: Project,
    stream: CheckStream,
) -> None:
    with work_folder("suites") as folder, _pipe_to(stream.read) as pipe:
        expect = folder / "expect.json"
        expect.write_text(json.dumps(run.target.expected), encoding="utf-8")
        command = _command(run, container, project, expect)
        code = call_pytest(command, host, pipe, run.folder / OUTPUT, run.stop)
    run.stop.check()
    if code not in _VERDICTS or not stream.ended:
        raise CheckFailedError(
            f"The suites of {run.target.name} could not be run (pytest exit code {code}). "
            f"Its output is in {run.folder / OUTPUT}. If the disk is full, free space there, or "
            "choose another folder with --report."
        )


def _command(
    run: SuiteRun, container: StartedContainer, project: Project, expect: Path
) -> list[str]:
    files = [str(project.suites / f"{PREFIX}{suite}.py") for suite in run.suites]
    return [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        "--tb=short",  # the arguments of a test can be the whole list of an image's files
        *("--rootdir", str(project.root), f"--hosts=docker://{container.id}"),
        *(f"--expect={expect}", f"--junitxml={run.folder / JUNIT}", "-o", "junit_logging=no"),
        *("-o", f"junit_suite_name={run.target.name}"),
        *("-o", "junit_family=xunit1"),  # xunit2 has no place for what a check records
        *(["--exitfirst"] if run.fail_fast else []),
        *([f"--no-gpu={container.no_gpu}"] if container.no_gpu else []),
        *files,
    ]


def call_pytest(
    command: Sequence[str], host: str | None, pipe: int, output: Path, stop: Stop
) -> int:
    """Return the exit code; -1 if it took too long. Nothing that it started outlives it.

    ``pipe`` is the descriptor that it writes its results to.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", VARIABLE: str(pipe)}
    if host:
        environment["DOCKER_HOST"] = host
    # SIGTERM goes to pytest alone: it needs its docker clients to remove what there is.
    with (
        output.open("w", encoding="utf-8") as file,
        process.start(
            command,
            env=environment,
            output=file,
            pass_fds=(pipe,),
            grace=CLEANUP_SECONDS,
            leader_first=True,
        ) as pytest,
        stop.guarding(pytest),
    ):
        try:
            return pytest.wait(TIMEOUT_SECONDS)
        except process.TimeoutExpired:
            return -1


@contextmanager
def _pipe_to(read: Callable[[str], None]) -> Iterator[int]:
    """Give the descriptor that a process may write lines to; all are read when the block ends.

    The caller passes it on to one process only, and the lines end when that has ended.
    """
    reading, writing = os.pipe()

    def read_lines() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                read(line)

    thread = threading.Thread(target=read_lines, daemon=True)
    thread.start()
    try:
        yield writing
    finally:
        os.close(writing)
        thread.join(timeout=5)
