"""A step that hangs is stopped, in the engine too, and takes no other image with it."""

import uuid
from pathlib import Path

import pytest

from support.copied_checkout import TEMPLATE
from support.own_dockerd import OwnDockerd
from support.small_project import BUILD, FINAL, SmallProject, small_project
from support.waiting import processes, wait_for

HANGING, OTHER = "tf-1.10-cpu-debian", "tf-1.11-cpu-debian"
#: More than the other image's steps need, and far less than the hanging one takes.
LIMIT = "15s"
#: How long images hang while another waits: longer than that one's limit.
LONGER = "40s"


@pytest.fixture
def project(dockerd: OwnDockerd, tmp_path: Path) -> SmallProject:
    made = small_project(tmp_path, dockerd.host)
    made.forget()
    return made


def _images(project: SmallProject) -> list[str]:
    return sorted(image.labels["imgbuild.name"] for image in project.named().values())


def test_one_of_two_images_hangs(project: SmallProject) -> None:
    mark = uuid.uuid4().hex
    hangs = f"RUN --network=none : {mark}; echo $((8 * 111)) begins; sleep 1000\n"
    only = f'{{% if image.name == "{HANGING}" %}}{hangs}{{% endif %}}'
    project.edit(TEMPLATE, FINAL, f"{FINAL}{only}")
    said = project.build("--keep-going", "--step-timeout", LIMIT, code=1).stderr
    assert "888 begins" in project.log(), "the step never ran"
    wait_for(lambda: not processes(mark), 30)  # in the engine
    assert f"ran for more than {LIMIT} (the limit of a step). The step was stopped" in said
    assert f"Building {HANGING} failed in the step" in said
    assert _images(project) == [OTHER] * 2
    assert project.check_names() == 2
    assert project.left() == []

    project.edit(TEMPLATE, only, "")
    project.build("--step-timeout", LIMIT)
    assert _images(project) == [HANGING] * 2 + [OTHER] * 2
    assert project.check_names() == 4
    assert project.left() == []


def test_who_waits_to_compile_is_not_blamed_for_those_that_hang(project: SmallProject) -> None:
    """Two images hang in the two places to compile; another build waits longer than its limit."""
    waits = "tf-1.12-cpu-debian"
    compiles = (
        "RUN --network=none --mount=type=bind,source=files/compiling.sh,target=/run/compiling.sh "
        "--mount=type=cache,id=places,target=/run/places "
        f'{{{{ "sleep 3; . /run/compiling.sh" if image.name == "{waits}" '
        'else ". /run/compiling.sh; sleep 1000 # " ~ image.name }}\n'  # equal steps would be one
    )
    project.edit(TEMPLATE, FINAL, f"{FINAL}{compiles}")
    project.forget_logs()
    hanging = project.start(*BUILD, "--keep-going", "--step-timeout", LONGER)
    wait_for(lambda: len(processes("sleep 1000 # tf-")) == 2)
    project.run("build", "--tf", "1.12", "--step-timeout", LIMIT)
    assert "imgbuild: waits for a place to compile" in project.log()
    _, said = hanging.communicate(timeout=120)
    assert hanging.returncode == 1
    for image in (HANGING, OTHER):
        assert f"{image} was not tagged" in said, said
    assert said.count(f"ran for more than {LONGER}") == 2
    assert _images(project) == [waits] * 2
    assert project.left() == []
