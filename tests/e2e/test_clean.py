"""`imgbuild clean` on an engine that has other people's things too."""

import uuid
from collections.abc import Iterator

import pytest

from imgbuild.suites.container import CONTAINER_LABEL, machine_digest
from support.own_dockerd import OwnDockerd
from support.small_project import NAMES, ONE, REPOSITORY, SmallProject, small_project

NAME = NAMES[0]
TAG = f"{REPOSITORY}:1.10-cpu"
SLEEP = ("run", "-d", "--network=none")


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    made = small_project(tmp_path_factory.mktemp("clean"), dockerd.host)
    made.run(*ONE)
    return made


@pytest.fixture(autouse=True)
def _no_container_stays(project: SmallProject) -> Iterator[None]:
    yield
    for container in project.printed("ps", "-aq").split():
        project.docker("rm", "--force", container)


def _derived(project: SmallProject, *options: str) -> str:
    """Build an image on top of one of imgbuild's, as users do; it inherits every label."""
    folder = project.root / "theirs"
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(f"FROM {TAG}\nENV THEIRS=1\n")
    return project.printed("build", "-q", *options, str(folder))


def _make_what_is_not_imgbuilds(project: SmallProject) -> None:
    """Make things of others, some of them much like imgbuild's."""
    _derived(project)
    _derived(project, "--label=x=1", "--tag=theirs/app:1")
    project.printed(*SLEEP, TAG, "sleep", "600")
    project.printed(*SLEEP, "--label=imgbuild-not=1", TAG, "sleep", "600")
    project.printed("network", "create", "--internal", "theirs")
    project.printed("volume", "create", "imgbuild-theirs")


def _everything(project: SmallProject) -> set[str]:
    listings = ("ps -aq --no-trunc", "network ls -q --no-trunc", "volume ls -q")
    found = [project.printed(*words.split()).split() for words in listings]
    return {one for listing in found for one in listing} | project.images()


def _leave(project: SmallProject, value: str) -> set[str]:
    """Leave a container and a network with the label of a test run."""
    label = f"--label={CONTAINER_LABEL}={value}"
    return {
        project.printed(*SLEEP, label, TAG, "sleep", "600"),
        project.printed("network", "create", "--internal", label, uuid.uuid4().hex),
    }


def test_it_removes_what_is_imgbuilds_and_nothing_else(project: SmallProject) -> None:
    _make_what_is_not_imgbuilds(project)
    elsewhere = _leave(project, f"{NAME}@000000000000")
    theirs = _everything(project)
    old = project.ids()[TAG]
    project.docker("tag", old, "keep:1")  # a name that somebody gave the first image
    project.say("second")
    project.run(*ONE, "--no-test")
    project.docker("rmi", "keep:1")
    mine = _leave(project, f"{NAME}@{machine_digest(project.state / 'imgbuild')}")
    project.run("clean")
    assert _everything(project) >= theirs | mine, "showing removes nothing"
    project.run("clean", "--yes")
    left = _everything(project)
    assert not left & mine
    assert left >= theirs - {old}
    assert [one for one in project.json("clean") if one["kind"] == "leftovers"] == []
    project.run("clean", "--yes", "--elsewhere", "--only", "leftovers")
    assert not _everything(project) & elsewhere


def test_an_image_that_failed_its_tests_has_no_name_and_goes(project: SmallProject) -> None:
    before = project.ids()
    suite = "tests/image/test_files.py"
    project.edit(suite, '== "9001"', '== "9002"')
    project.say("failing")
    failed = project.run(*ONE, code=1)
    assert f"{NAME} was not tagged: " in failed.stderr
    assert project.ids() == before
    assert project.left() == []
    plan = project.plan("1.10")
    assert (plan["action"], plan["reason"]) == ("test", "built, its suites failed last time")
    project.edit(suite, '== "9002"', '== "9001"')
    assert f"({NAME})" in project.run("clean", "--only", "untagged").stdout
    assert plan["image_id"] in _everything(project)
    project.run("clean", "--yes", "--only", "untagged")
    assert plan["image_id"] not in _everything(project)


def test_named_images_go_only_when_asked_for_and_not_while_in_use(project: SmallProject) -> None:
    project.run(*ONE)
    names = {*project.named()}
    project.run("clean", "--yes")
    assert {*project.named()} == names
    used = project.printed(*SLEEP, TAG, "sleep", "600")
    result = project.run("clean", "--yes", "--only", "images", code=1)
    assert "it is in use" in result.stdout
    assert {*project.named()} == names
    project.docker("rm", "--force", used)
    project.run("clean", "--yes", "--only", "images")
    assert project.named() == {}


def test_what_somebody_built_on_top_is_not_named_by_the_next_build(project: SmallProject) -> None:
    """Its labels, the input digest too, are those of the image that is gone."""
    project.run(*ONE)
    theirs = _derived(project, "--label=x=2")
    for tag in project.named():
        project.docker("rmi", tag)
    project.run(*ONE)
    assert project.check_names() == 2
    assert theirs not in project.ids().values()


def test_the_build_cache_goes_only_on_request(project: SmallProject) -> None:
    project.run(*ONE, "--no-test")
    project.run("clean", "--yes")
    assert project.json("clean", "--only", "build-cache")
    project.run("clean", "--build-cache", "--yes")
    assert project.json("clean", "--only", "build-cache") == []
