"""The arrow local image → Report: start a container, run pytest against it, stop it."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imgbuild.engine.process import end
from imgbuild.engine.protocol import Engine
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.matrix.image import Image
from imgbuild.project import Project
from imgbuild.suites.code import PREFIX, code_digest
from imgbuild.suites.expectation import expectation
from imgbuild.suites.junit import read_junit
from imgbuild.suites.report import Report, SuiteResult
from imgbuild.work_folder import work_folder

#: Marks the containers of test runs, so that leftovers of a killed run are found.
CONTAINER_LABEL = "imgbuild.test-of"
#: The longest any set of suites may take, in seconds; each command inside has its own limit.
TIMEOUT_SECONDS = 1800
#: pytest's exit codes for "all passed" and "some failed": the only ones with a verdict.
_VERDICTS = {0, 1}


@dataclass(frozen=True)
class SuiteRun:
    """Which suites to run in which image, and where the results go."""

    image: Image
    image_id: str
    suites: tuple[str, ...]
    folder: Path


def require_docker_client() -> None:
    """Raise unless testinfra will find a docker client: asked before anything is built.

    Raises:
        MachineError: there is none on PATH.

    """
    if shutil.which("docker") is None:
        raise MachineError(
            "No docker client on PATH; the suites run their commands through it. Install one "
            "(Debian: apt-get install docker-cli; Ubuntu: docker.io), or build with --no-test."
        )


def run_suites(run: SuiteRun, engine: Engine, host: str | None, project: Project) -> Report:
    """Return what the suites found; ``report.json`` and ``junit.xml`` are in ``run.folder``.

    Raises:
        MachineError: no docker client, or the engine cannot start the container.
        CheckFailedError: pytest itself failed; the path of its output is given.

    """
    run.folder.mkdir(parents=True, exist_ok=True)
    junit = run.folder / "junit.xml"
    junit.unlink(missing_ok=True)
    with _container(run, engine) as container:
        _pytest(run, container, host, project, junit)
    report = Report(
        run.image.name,
        run.image_id,
        code_digest(project.suites),
        _results(run, junit),
    )
    text = json.dumps(report.as_json(), indent=2) + "\n"
    (run.folder / "report.json").write_text(text, encoding="utf-8")
    return report


def _results(run: SuiteRun, junit: Path) -> tuple[SuiteResult, ...]:
    try:
        return read_junit(junit, run.suites)
    except ET.ParseError as error:
        raise MachineError(
            f"pytest's result {junit} is not whole ({error}); is the disk full? Free space in "
            f"{run.folder}, or choose another folder with --report."
        ) from error


@contextmanager
def _container(run: SuiteRun, engine: Engine) -> Iterator[str]:
    container = engine.start(
        run.image_id,
        command=["sleep", "infinity"],
        labels={CONTAINER_LABEL: run.image.name},
    )
    try:
        yield container
    finally:
        engine.remove_container(container)


def _pytest(run: SuiteRun, container: str, host: str | None, project: Project, junit: Path) -> None:
    with work_folder("suites") as folder:
        expect = folder / "expect.json"
        expect.write_text(json.dumps(expectation(run.image, project)), encoding="utf-8")
        output = run.folder / "pytest.txt"
        code = _call(_command(run, container, project, junit, expect), host, output)
    if code not in _VERDICTS or not junit.exists():
        raise CheckFailedError(
            f"The suites of {run.image.name} could not be run (pytest exit code {code}). "
            f"Its output is in {output}."
        )


def _command(
    run: SuiteRun, container: str, project: Project, junit: Path, expect: Path
) -> list[str]:
    files = [str(project.suites / f"{PREFIX}{suite}.py") for suite in run.suites]
    return [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("--rootdir", str(project.root), f"--hosts=docker://{container}"),
        *(f"--expect={expect}", f"--junitxml={junit}", "-o", "junit_logging=no"),
        *files,
    ]


def _call(command: list[str], host: str | None, output: Path) -> int:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if host:
        environment["DOCKER_HOST"] = host
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        try:
            return process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            end(process)  # pytest's docker clients too
