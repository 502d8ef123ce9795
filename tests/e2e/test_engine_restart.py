"""The engine is stopped or killed in the middle of a build, and started again."""

import signal
from collections.abc import Callable

import pytest
from own_dockerd import OwnDockerd
from small_project import SmallProject, small_project

from waiting import wait_for

ONE = ("build", "--tf", "1.10")
TEMPLATE, FINAL = "images/templates/Dockerfile.j2", "FROM os AS final\n"
#: Its export takes half a second.
HEAVY = "RUN --network=none head -c 100000000 /dev/urandom > /heavy\n"
EXPORTED = "exporting to image (done"
#: Writes the same bytes whatever the word is, so that the graph driver has one layer for all.
SAME = "RUN --network=none echo > /same && touch -d @1 /same / /etc /run # {}\n"


def _in_export(project: SmallProject) -> bool:
    return "exporting to image (started)" in project.log()


#: The place that waits, and how it is seen that the build is there.
MOMENTS: dict[str, tuple[str, Callable[[SmallProject], bool]]] = {
    "step": ("middle", SmallProject.in_step),
    "export": ("", _in_export),
    "suite": ("suite", SmallProject.in_suite),
}


#: A step ends with its engine; a suite that sleeps does not notice.
PAUSE = {"middle": 60, "suite": 3}


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    made = small_project(tmp_path_factory.mktemp("restart"), dockerd.host)
    made.run(*ONE)
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
    project.forget_logs()
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
    project.finish(2, *ONE)


def test_an_engine_that_is_not_there(project: SmallProject, dockerd: OwnDockerd) -> None:
    dockerd.stop()
    result = project.run(*ONE, code=3)
    assert "Start it, read in its log why it was stopped" in result.stderr
    dockerd.start()
    project.run(*ONE)


def test_a_layer_that_the_engine_lost_is_built_again(
    project: SmallProject, dockerd: OwnDockerd
) -> None:
    """Docker 28 restarts, and prunes one of two steps that share a layer: the other's is gone."""
    for word in ("one", "two"):
        project.edit(TEMPLATE, FINAL, SAME.format(word) + FINAL)
        project.run(*ONE, "--no-test")
        project.edit(TEMPLATE, SAME.format(word), "")
    dockerd.stop()
    dockerd.start()
    project.forget()
    said = project.docker("buildx", "du", "--verbose", "--filter=description~=same.*one", code=0)
    (entry,) = (line.split()[1] for line in said.stdout.splitlines() if line.startswith("ID:"))
    project.docker("builder", "prune", "--all", "--force", f"--filter=id!={entry}", code=0)
    project.edit(TEMPLATE, FINAL, SAME.format("one") + FINAL)
    project.forget_logs()
    project.finish(2, *ONE)
    assert f"failed to prepare {entry}" in project.log()
    project.edit(TEMPLATE, SAME.format("one"), "")
