"""The arrow local image → suite results: start a container, run pytest against it, stop it."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import work_folder
from imgbuild.process import dies_with_parent
from imgbuild.project import Project
from imgbuild.suites.code import PREFIX, code_digest
from imgbuild.suites.container import Started, suite_container
from imgbuild.suites.junit import read_junit
from imgbuild.suites.progress import VARIABLE, Progress, pipe_to
from imgbuild.suites.report import Report, SuiteResult
from imgbuild.suites.stopping import Stop
from imgbuild.suites.subject import Subject

#: The longest any set of suites may take, in seconds; each command inside has its own limit.
TIMEOUT_SECONDS = 1800
#: pytest's exit codes for "all passed" and "some failed": the only ones with a verdict.
_VERDICTS = {0, 1}


@dataclass(frozen=True)
class SuiteRun:
    """Which suites to run in which image, and where the results go.

    ``say`` is told what could not be had, and how far the run is; ``step`` of every check.
    """

    subject: Subject
    suites: tuple[str, ...]
    folder: Path
    fail_fast: bool = False
    say: Callable[[str], None] = lambda _: None
    step: Callable[[str], None] = lambda _: None
    stop: Stop = field(default_factory=Stop)


def run_suites(run: SuiteRun, engine: Engine, host: str | None, project: Project) -> Report:
    """Return what the suites found; pytest's ``junit.xml`` and output are in ``run.folder``.

    Raises:
        MachineError: no docker client, or the engine cannot start the container.
        CheckFailedError: pytest itself failed; the path of its output is given.
        StoppedError: the run was interrupted.

    """
    run.stop.check()
    run.folder.mkdir(parents=True, exist_ok=True)
    junit = run.folder / "junit.xml"
    junit.unlink(missing_ok=True)
    started = time.monotonic()
    with suite_container(run.subject, engine, run.say) as container:
        _pytest(run, container, host, project, junit)
    seconds = time.monotonic() - started
    results = {result.suite: result for result in _results(run, junit)}
    begun = {name: results[name] for name in run.suites if name in results}
    return Report(
        run.subject.name,
        run.subject.image_id,
        code_digest(project.suites),
        tuple(begun.values()),
        container.offered,
        not_begun=tuple(name for name in run.suites if name not in begun),
        seconds=seconds,
    )


def _results(run: SuiteRun, junit: Path) -> tuple[SuiteResult, ...]:
    try:
        return read_junit(junit, run.suites, whole=not run.fail_fast)
    except ET.ParseError as error:
        raise MachineError(
            f"pytest's result {junit} is not whole ({error}); is the disk full? Free space in "
            f"{run.folder}, or choose another folder with --report."
        ) from error


def _pytest(
    run: SuiteRun, container: Started, host: str | None, project: Project, junit: Path
) -> None:
    progress = Progress(run.say, run.step)
    with work_folder("suites") as folder, pipe_to(progress.told) as pipe:
        expect = folder / "expect.json"
        expect.write_text(json.dumps(run.subject.expected), encoding="utf-8")
        call = Call(_command(run, container, project, junit, expect), host, pipe)
        code = call.run(run.folder / "pytest.txt", run.stop)
    run.stop.check()
    if code not in _VERDICTS or not junit.exists():
        raise CheckFailedError(
            f"The suites of {run.subject.name} could not be run (pytest exit code {code}). "
            f"Its output is in {run.folder / 'pytest.txt'}."
        )


def _command(
    run: SuiteRun, container: Started, project: Project, junit: Path, expect: Path
) -> list[str]:
    files = [str(project.suites / f"{PREFIX}{suite}.py") for suite in run.suites]
    return [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        "--tb=short",  # the arguments of a test can be the whole list of an image's files
        *("--rootdir", str(project.root), f"--hosts=docker://{container.id}"),
        *(f"--expect={expect}", f"--junitxml={junit}", "-o", "junit_logging=no"),
        *("-o", "junit_family=xunit1"),  # xunit2 has no place for what a check records
        *(["--exitfirst"] if run.fail_fast else []),
        *([f"--no-gpu={container.no_gpu}"] if container.no_gpu else []),
        *files,
    ]


@dataclass(frozen=True)
class Call:
    """One start of pytest: for which engine, and the descriptor by which it tells its progress."""

    command: Sequence[str]
    host: str | None = None
    pipe: int | None = None

    def run(self, output: Path, stop: Stop) -> int:
        """Return the exit code; -1 if it took too long. Nothing that it started outlives it."""
        with output.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                dies_with_parent(self.command),
                env=self._environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=() if self.pipe is None else (self.pipe,),
            )
            with stop.guarding(process):
                try:
                    return process.wait(TIMEOUT_SECONDS)
                except subprocess.TimeoutExpired:
                    return -1

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        if self.host:
            environment["DOCKER_HOST"] = self.host
        if self.pipe is not None:
            environment[VARIABLE] = str(self.pipe)
        return environment
