"""The engine is stopped or killed in the middle of a build, and started again."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from own_dockerd import OwnDockerd, own_dockerd
from small_project import SmallProject, small_project
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ONE = ("build", "--tf", "1.10")
TEMPLATE, FINAL = "images/templates/Dockerfile.j2", "FROM os AS final\n"
#: Its export takes half a second.
HEAVY = "RUN --network=none head -c 100000000 /dev/urandom > /heavy\n"
EXPORTED = "exporting to image (done"


def _in_step(project: SmallProject) -> bool:
    return "# middle" in project.log()


def _in_export(project: SmallProject) -> bool:
    return "exporting to image (started)" in project.log()


def _in_suite(project: SmallProject) -> bool:
    return len(project.docker("ps", "-q").stdout.split()) > 1


#: The place that waits, and how it is seen that the build is there.
MOMENTS: dict[str, tuple[str, Callable[[SmallProject], bool]]] = {
    "step": ("middle", _in_step),
    "export": ("", _in_export),
    "suite": ("suite", _in_suite),
}


#: A step ends with its engine; a suite that sleeps does not notice.
PAUSE = {"middle": 60, "suite": 3}


@pytest.fixture(scope="module")
def dockerd() -> Iterator[OwnDockerd]:
    with own_dockerd() as engine:
        yield engine


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    made = small_project(tmp_path_factory.mktemp("restart"), dockerd.host)
    assert made.run(*ONE).returncode == 0
    return made


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL]
)
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_engine_that_goes_and_comes_back(
    project: SmallProject, dockerd: OwnDockerd, moment: str, number: signal.Signals
) -> None:
    place, reached = MOMENTS[moment]
    project.say(f"{moment}-{number}")
    if moment == "export":
        project.edit(TEMPLATE, FINAL, f"{FINAL}{HEAVY}")
    if place:
        project.pause(place, PAUSE[place])
    for log in (project.state / "imgbuild" / "logs").glob("*"):
        log.unlink()
    process = project.start(*ONE)
    wait_for(lambda: reached(project))
    dockerd.stop(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode in {1, 3}, stderr
    assert "Traceback" not in stderr
    assert "engine" in stderr, stderr
    if (moment, number) == ("export", signal.SIGKILL):  # else it ends what it has begun
        assert EXPORTED not in project.log()
    dockerd.start()
    project.check_names()
    if place:
        project.pause(place, 0)
    if moment == "export":
        project.edit(TEMPLATE, HEAVY, "")
    result = project.run(*ONE)
    assert result.returncode == 0, result.stderr
    assert project.check_names() == 2
    assert project.left() == []


def test_an_engine_that_is_not_there(project: SmallProject, dockerd: OwnDockerd) -> None:
    dockerd.stop()
    result = project.run(*ONE)
    assert result.returncode == 3, result.stderr
    assert "start the engine" in result.stderr
    dockerd.start()
    assert project.run(*ONE).returncode == 0
