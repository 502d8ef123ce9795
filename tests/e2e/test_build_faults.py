"""Builds that are interrupted or killed, or lose the engine or its disk; then the next build."""

import random
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.copied_checkout import TEMPLATE, change_settings
from support.network_namespace import served
from support.own_dockerd import OwnDockerd
from support.small_project import BUILD, FINAL, ONE, SmallProject, small_project
from support.waiting import processes, wait_for

#: What is seen in the log of a build at a place: the step begins, or the last has written all.
#: After it the engine exports the layers: the records of an image's 9000 files take half a MB.
MARKS = {
    "first": "# first",
    "middle": "# middle",
    "last": "9001 files",
    "export": "exporting to image (started)",
}
EXPORTED, EXPORT_FAILED = "exporting to image (done", "exporting to image (failed"
#: Its export takes a second.
HEAVY = "RUN --network=none head -c 200000000 /dev/urandom > /heavy\n"
#: Writes the same bytes whatever the word is, so that the graph driver has one layer for all.
SAME = "RUN --network=none echo > /same && touch -d @1 /same / /etc /run # {}\n"
#: Reproducible, and spread over the whole build: one moment in each part of it.
RANDOM = random.Random(5)  # noqa: S311


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    made = small_project(tmp_path_factory.mktemp("faults"), dockerd.host)
    made.build()
    return made


def _waiting_build(
    project: SmallProject, place: str, seconds: float, *command: str
) -> subprocess.Popen[str]:
    """Begin a command with other images; return when it waits at a place, or exports them."""
    project.say(uuid.uuid4().hex)
    project.pause(place, seconds)
    project.forget_logs()
    process = project.start(*command)
    images = len([word for word in command if word == "--tf"])
    wait_for(lambda: _reached(project, place, images))
    return process


def _reached(project: SmallProject, place: str, images: int) -> bool:
    if place in MARKS:
        return project.log().count(MARKS[place]) >= images
    if place == "end":  # after the suite's second container
        wait_for(project.in_suite)
        return wait_for(lambda: not project.in_suite())
    return project.in_suite()


def _build_again(project: SmallProject, place: str, *command: str) -> None:
    project.pause(place, 0)
    project.finish(4, *command)


def _wait_for_the_end_of_all(project: SmallProject, dockerd: OwnDockerd) -> None:
    """Wait until nothing works for the project: imgbuild, buildx, pytest, clients."""
    mine = (str(project.root), str(project.state), str(project.host))
    engine = {dockerd.process.pid} if dockerd.process else set()
    wait_for(lambda: not {pid for text in mine for pid in processes(text)} - engine)


#: Where a command is ended, and by what. SIGTERM is to the others what it is to a build.
ENDED = [
    pytest.param(
        place,
        command,
        number,
        id=f"{place}-{command[0]}-{number.name}",
        marks=[pytest.mark.nightly] if number == signal.SIGTERM else [],  # as Ctrl-C inside
    )
    for place, command in (
        ("middle", ONE),
        ("export", ONE),
        ("suite", ONE),
        ("suite", ("test", "--tf", "1.10", "--refresh")),
        ("suite", ("extend", "--tf", "1.10", "-t", "me/other:1", "--env", "N=1")),
        ("middle", ("verify", "--rebuild", "--tf", "1.10")),
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
]


@pytest.mark.parametrize(("place", "command", "number"), ENDED)
def test_a_command_that_is_ended(
    project: SmallProject,
    dockerd: OwnDockerd,
    place: str,
    command: tuple[str, ...],
    number: signal.Signals,
) -> None:
    """A step and a suite that would go on for minutes end at once; a rerun clears up."""
    before, images = project.ids(), project.images()
    if place == "export":
        project.edit(TEMPLATE, FINAL, FINAL + HEAVY)
    process = _waiting_build(project, place, 300, *command)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    _wait_for_the_end_of_all(project, dockerd)
    if number != signal.SIGKILL:
        assert process.returncode == 130, said
        assert "Traceback" not in said
        assert project.left() == []
        assert command == ONE or project.images() == images
    elif command[0] in {"extend", "verify"}:  # of other names than the rerun
        project.run("clean", "--yes")
    assert project.ids() == before
    assert project.docker("image", "inspect", "me/other:1").returncode != 0
    if place == "export":
        project.edit(TEMPLATE, HEAVY, "")
    _build_again(project, place, *ONE)


@pytest.mark.nightly
def test_kill_at_many_moments_and_build_again(project: SmallProject, dockerd: OwnDockerd) -> None:
    whole, alive, moments = _seconds(project), 0, 10
    for moment in range(moments):
        whole = min(whole, _seconds(project))  # earlier ones may have been disturbed
        project.say(uuid.uuid4().hex)
        process = project.start(*ONE)
        time.sleep(whole * (moment + RANDOM.random()) / moments)
        alive += process.poll() is None
        process.kill()
        process.communicate()
        _wait_for_the_end_of_all(project, dockerd)
        names = project.ids()
        assert project.check_names() == 4
        time.sleep(0.5)
        assert project.ids() == names, "something went on naming"
        project.finish(4, *ONE)
    # No two builds take the same time.
    assert alive >= moments * 3 / 4, f"{alive} of {moments} builds were not over when killed"


def _seconds(project: SmallProject) -> float:
    """Return how long a build takes that has its base."""
    project.say(uuid.uuid4().hex)
    started = time.monotonic()
    project.run(*ONE)
    return time.monotonic() - started


def test_what_is_at_work_is_left_alone_and_clean_removes_what_a_killed_run_left(
    project: SmallProject, dockerd: OwnDockerd
) -> None:
    process = _waiting_build(project, "suite", 300, *ONE)
    second = project.run(*ONE, code=3)
    assert f"by another imgbuild (process {process.pid})" in second.stderr
    busy = project.run("clean", "--yes", "--only", "leftovers", code=1)
    assert f"process {process.pid} is working on it" in busy.stdout
    assert len(project.left()) > 3
    process.kill()
    process.communicate()
    _wait_for_the_end_of_all(project, dockerd)
    assert "of a test of tf-1.10-cpu-debian" in project.run("clean").stdout
    assert project.left() != []
    project.run("clean", "--yes")
    assert project.left() == []
    _build_again(project, "suite", *ONE)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_kill_while_a_tag_is_set(
    project: SmallProject, dockerd: OwnDockerd, tmp_path: Path, moment: str
) -> None:
    """The first of two tags: the engine has not been asked for it, or has not answered yet."""
    project.say(uuid.uuid4().hex)
    before, killed = project.ids(), threading.Event()

    def on_piece(data: bytes, hand_on: Callable[[], None]) -> None:
        tags = b"/tag?" in data.partition(b"\r\n")[0]
        if not tags or moment == "after":
            hand_on()
        if tags and not killed.is_set():
            process.kill()
            killed.set()

    def connect() -> socket.socket:
        engine = socket.socket(socket.AF_UNIX)
        engine.connect(dockerd.host.removeprefix("unix://"))
        return engine

    listening, place = socket.socket(socket.AF_UNIX), tmp_path / "engine.sock"
    listening.bind(str(place))
    listening.listen(64)
    with served(listening, connect, on_piece):
        root, address = tmp_path / "checkout", f"unix://{place}"
        shutil.copytree(project.root, root)
        change_settings(root, engine={"host": address})
        process = replace(project, root=root, host=address).start(*ONE)
        _, said = process.communicate(timeout=120)
    assert killed.is_set(), said
    assert process.returncode == -signal.SIGKILL
    _wait_for_the_end_of_all(project, dockerd)
    assert (project.ids() == before) == (moment == "before")
    project.finish(4, *ONE)


def test_two_users_build_one_image_at_once(project: SmallProject, tmp_path: Path) -> None:
    """Each has its own folders and locks; the engine is the same."""
    project.say(uuid.uuid4().hex)
    both = (project, replace(project, state=tmp_path / "state"))
    started = [user.start(*ONE) for user in both]
    said = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert project.plan("1.10")["action"] == both[1].plan("1.10")["action"] == "nothing"
    assert project.check_names() == 4
    assert [user.left() for user in both] == [[], []]


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL],
    ids=lambda one: one.name,
)
@pytest.mark.parametrize(("place", "seconds"), [("middle", 60), ("export", 0), ("suite", 3)])
def test_an_engine_that_goes_and_comes_back(
    project: SmallProject, dockerd: OwnDockerd, place: str, seconds: float, number: signal.Signals
) -> None:
    """A step ends with its engine; a suite that sleeps does not notice."""
    if place == "export":
        project.edit(TEMPLATE, FINAL, FINAL + HEAVY)
    process = _waiting_build(project, place, seconds, *ONE)
    dockerd.stop(number)
    _, said = process.communicate(timeout=60)
    dockerd.start()  # before a check that may fail: the other tests need it
    assert process.returncode in {1, 3}, said
    assert "Traceback" not in said
    assert "engine" in said, said
    if (place, number) == ("export", signal.SIGKILL):  # else it ends what it has begun
        assert EXPORTED not in project.log()
    project.check_names()
    if place == "export":
        project.edit(TEMPLATE, HEAVY, "")
    _build_again(project, place, *ONE)


def test_a_layer_that_the_engine_lost_is_built_again(
    project: SmallProject, dockerd: OwnDockerd
) -> None:
    """Docker 28 restarts, and prunes one of two steps that share a layer: the other's is gone."""
    for word in ("one", "two"):
        project.edit(TEMPLATE, FINAL, SAME.format(word) + FINAL)
        project.run(*ONE, "--no-test")
        project.edit(TEMPLATE, SAME.format(word), "")
    dockerd.stop()
    project.run(*ONE, code=3)
    dockerd.start()
    project.forget()
    said = project.printed("buildx", "du", "--verbose", "--filter=description~=same.*one")
    (entry,) = (line.split()[1] for line in said.splitlines() if line.startswith("ID:"))
    project.printed("builder", "prune", "--all", "--force", f"--filter=id!={entry}")
    project.edit(TEMPLATE, FINAL, SAME.format("one") + FINAL)
    project.forget_logs()
    project.finish(2, *ONE)
    assert f"failed to prepare {entry}" in project.log()
    project.edit(TEMPLATE, SAME.format("one"), "")


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("first", 0),
        ("last", 0),
        ("suite", 0),
        pytest.param("first", 4_000_000, marks=pytest.mark.nightly),
        pytest.param("middle", 0, marks=pytest.mark.nightly),
        pytest.param("last", 100_000, marks=pytest.mark.nightly),
        pytest.param("last", 200_000, marks=pytest.mark.nightly),
        pytest.param("last", 400_000, marks=pytest.mark.nightly),
        pytest.param("end", 0, marks=pytest.mark.nightly),
    ],
)
def test_a_disk_that_fills_up_and_is_emptied(
    project: SmallProject, dockerd: OwnDockerd, place: str, left: int
) -> None:
    before = project.ids()
    process = _waiting_build(project, place, 3, *BUILD)
    dockerd.disk.fill(left)
    _, said = process.communicate(timeout=120)
    dockerd.disk.empty()
    assert "Traceback" not in said
    # At the end the containers go first, which can make room enough for two names.
    if place != "end" or process.returncode:
        assert process.returncode in {1, 3}, said
        assert "disk is full" in said or "no space left" in said.lower(), said
    assert (EXPORT_FAILED in project.log()) == (place == "last"), said
    assert {*before} <= {*project.named()}
    project.check_names()
    assert project.left() == []
    _build_again(project, place, *BUILD)
    assert not {*project.ids().values()} & {*before.values()}


def test_a_full_disk_is_told_before_anything_starts(
    project: SmallProject, dockerd: OwnDockerd
) -> None:
    project.say("before")
    before = project.ids()
    dockerd.disk.fill(1_000_000_000)
    result = project.build(code=3)
    dockerd.disk.empty()
    assert "nothing was started" in result.stderr
    assert project.ids() == before
