"""The engine's disk fills up at many moments of a build; then there is room again."""

import pytest
from own_dockerd import OwnDockerd
from small_project import BUILD, SmallProject, small_project

from waiting import wait_for

#: The place that waits while the disk fills, how many bytes are left then, and where it must fail.
#: After the last step the engine exports the layers: the records of an image's 9000 files take
#: half a MB.
MOMENTS = (("first", 0), ("last", 0), ("suite", 0))
MORE_MOMENTS = (
    ("first", 4_000_000),
    ("middle", 0),
    ("last", 100_000),
    ("last", 200_000),
    ("last", 400_000),
    ("end", 0),
)
#: What is seen in the log of a build: the step begins, or, of the last one, has written all.
MARKS = {"first": "# first", "middle": "# middle", "last": "9001 files"}
EXPORT_FAILED = "exporting to image (failed"


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    made = small_project(tmp_path_factory.mktemp("full"), dockerd.host)
    made.build()
    return made


def _reached(project: SmallProject, place: str) -> bool:
    """Return whether the build waits at a place; ``end`` is after a suite's second container."""
    if place in MARKS:
        return project.log().count(MARKS[place]) >= 2
    wait_for(lambda: bool(_second_containers(project)))
    if place == "end":
        wait_for(lambda: not _second_containers(project))
    return True


def _second_containers(project: SmallProject) -> list[str]:
    """Return the containers that run beside those that are tested."""
    return project.docker("ps", "-q", "--filter", "name=^small-").stdout.split()


@pytest.mark.parametrize(
    ("place", "left"),
    [*MOMENTS, *(pytest.param(*one, marks=pytest.mark.nightly) for one in MORE_MOMENTS)],
)
def test_a_disk_that_fills_up_and_is_emptied(
    project: SmallProject, dockerd: OwnDockerd, place: str, left: int
) -> None:
    before = {tag: image.id for tag, image in project.named().items()}
    project.say(f"{place}-{left}")
    project.pause(place, 3)
    project.forget_logs()
    process = project.start(*BUILD)
    wait_for(lambda: _reached(project, place))
    dockerd.disk.fill(left)
    _, stderr = process.communicate(timeout=120)
    dockerd.disk.empty()
    assert "Traceback" not in stderr
    # At the end the containers go first, which can make room enough for two names.
    if place != "end" or process.returncode:
        assert process.returncode in {1, 3}, stderr
        assert "disk is full" in stderr or "no space left" in stderr.lower(), stderr
    assert (EXPORT_FAILED in project.log()) == (place == "last"), stderr
    named = project.named()
    assert set(before) <= set(named)
    project.check_names()
    assert project.left() == []
    project.pause(place, 0)
    project.finish(4, *BUILD)
    assert not {image.id for image in project.named().values()} & set(before.values())


def test_a_full_disk_is_told_before_anything_starts(
    project: SmallProject, dockerd: OwnDockerd
) -> None:
    project.say("before")
    before = {tag: image.id for tag, image in project.named().items()}
    dockerd.disk.fill(1_000_000_000)
    result = project.build(code=None)
    dockerd.disk.empty()
    assert result.returncode == 3, result.stderr
    assert "1.0 GB are free" in result.stderr or "0.9 GB are free" in result.stderr
    assert "nothing was started" in result.stderr
    assert {tag: image.id for tag, image in project.named().items()} == before
