"""`kill -9` of imgbuild at many moments of a build, and the next build."""

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from own_dockerd import OwnDockerd
from small_project import SmallProject, small_project

from waiting import wait_for

ONE = ("build", "--tf", "1.10")
#: Reproducible, and spread over the whole build: one moment in each part of it.
RANDOM = random.Random(5)  # noqa: S311


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    return small_project(tmp_path_factory.mktemp("killed"), dockerd.host)


def _processes(project: SmallProject) -> list[str]:
    """Return the command lines of what works for the project: imgbuild, buildx, pytest, clients."""
    mine = (str(project.root), str(project.state), project.host or "")
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if any(word in line for word in mine) and "dockerd" not in line.split(" ")[0]:
            found.append(line)
    return found


def _kill(project: SmallProject, process: subprocess.Popen[str]) -> None:
    """Kill imgbuild, and check that nothing that it started goes on."""
    process.kill()
    process.communicate()
    wait_for(lambda: not _processes(project), 15)


@pytest.mark.parametrize("moments", [4, pytest.param(10, marks=pytest.mark.nightly)])
def test_kill_at_many_moments_and_build_again(project: SmallProject, moments: int) -> None:
    project.finish(2, *ONE)  # the first build makes or loads the base, too
    whole = min(_seconds(project, word) for word in ("one", "two"))  # one may have been disturbed
    alive = 0
    for moment in range(moments):
        project.say(f"w{moment}")
        before = project.named()
        process = project.start(*ONE)
        time.sleep(whole * (moment + RANDOM.random()) / moments)
        alive += process.poll() is None
        _kill(project, process)
        names = project.named()
        assert project.check_names() in {len(before), 2}
        time.sleep(0.5)
        assert project.named() == names, "something went on naming"
        project.finish(2, *ONE)
    # No two builds take the same time.
    assert alive >= moments * 3 / 4, f"{alive} of {moments} builds were not over when killed"


def _seconds(project: SmallProject, word: str) -> float:
    """Return how long a build takes that has its base."""
    project.say(word)
    started = time.monotonic()
    project.run(*ONE)
    return time.monotonic() - started


@pytest.mark.parametrize(
    ("place", "reached"), [("middle", SmallProject.in_step), ("suite", SmallProject.in_suite)]
)
def test_kill_while_something_waits(
    project: SmallProject, place: str, reached: Callable[[SmallProject], bool]
) -> None:
    """A step and a suite that would go on for minutes end at once; the rerun clears up."""
    project.forget_logs()
    project.say(place)
    project.pause(place, 300)
    before = {image.id for image in project.named().values()}
    process = project.start(*ONE)
    wait_for(lambda: reached(project))
    _kill(project, process)
    assert {image.id for image in project.named().values()} == before
    project.pause(place, 0)
    project.finish(2, *ONE)


def test_clean_removes_what_a_killed_run_left(project: SmallProject) -> None:
    project.say("clean")
    project.pause("suite", 300)
    process = project.start(*ONE)
    wait_for(project.in_suite)
    busy = project.run("clean", "--yes", "--only", "leftovers", code=1)
    assert f"process {process.pid} is at work on it" in busy.stdout
    assert len(project.left()) > 3
    _kill(project, process)
    assert project.left() != []
    shown = project.run("clean")
    assert "of a test of tf-1.10-cpu-debian" in shown.stdout
    assert "its process was killed" in shown.stdout
    assert project.left() != []
    project.run("clean", "--yes")
    assert project.left() == []
    project.pause("suite", 0)
    project.finish(2, *ONE)
