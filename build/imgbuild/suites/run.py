"""The arrow local image → Report: start a container, run pytest against it, stop it."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from imgbuild.engine.process import end
from imgbuild.engine.protocol import Engine
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.matrix.image import Image
from imgbuild.project import Project
from imgbuild.suites.code import PREFIX, code_digest
from imgbuild.suites.container import Started, suite_container
from imgbuild.suites.driver import Export
from imgbuild.suites.expectation import expectation
from imgbuild.suites.junit import read_junit
from imgbuild.suites.report import Report, SuiteResult
from imgbuild.work_folder import work_folder

#: The longest any set of suites may take, in seconds; each command inside has its own limit.
TIMEOUT_SECONDS = 1800
#: pytest's exit codes for "all passed" and "some failed": the only ones with a verdict.
_VERDICTS = {0, 1}


@dataclass(frozen=True)
class SuiteRun:
    """Which suites to run in which image, and where the results go.

    ``standin`` are the versions of an image of stand-ins; ``export`` makes the driver's stub, which
    old TensorFlow for GPUs cannot do without; ``say`` is told what could not be had.
    """

    image: Image
    image_id: str
    suites: tuple[str, ...]
    folder: Path
    standin: Mapping[str, str] | None = None
    export: Export | None = None
    say: Callable[[str], None] = lambda _: None


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
    with suite_container(run.image, run.image_id, engine, run.export, run.say) as container:
        _pytest(run, container, host, project, junit)
    report = Report(
        run.image.name,
        run.image_id,
        code_digest(project.suites),
        _results(run, junit),
        container.offered,
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


def _pytest(
    run: SuiteRun, container: Started, host: str | None, project: Project, junit: Path
) -> None:
    with work_folder("suites") as folder:
        expect = folder / "expect.json"
        document = expectation(run.image, project, run.standin)
        expect.write_text(json.dumps(document), encoding="utf-8")
        output = run.folder / "pytest.txt"
        code = _call(_command(run, container, project, junit, expect), host, output)
    if code not in _VERDICTS or not junit.exists():
        raise CheckFailedError(
            f"The suites of {run.image.name} could not be run (pytest exit code {code}). "
            f"Its output is in {output}."
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
        *([f"--no-gpu={container.no_gpu}"] if container.no_gpu else []),
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
