"""`imgbuild clean` on an engine that has other people's things too."""

import json
import uuid
from collections.abc import Iterator

import pytest
from own_dockerd import OwnDockerd
from small_project import REPOSITORY, SmallProject, small_project

from imgbuild.suites.container import CONTAINER_LABEL, place_of

ONE = ("build", "--tf", "1.10")
NAME = "tf-1.10-cpu-debian"
TAG = f"{REPOSITORY}:1.10-cpu-debian"


@pytest.fixture(scope="module")
def project(dockerd: OwnDockerd, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    made = small_project(tmp_path_factory.mktemp("clean"), dockerd.host)
    made.run(*ONE)
    return made


@pytest.fixture(autouse=True)
def _no_container_stays(project: SmallProject) -> Iterator[None]:
    yield
    for container in project.docker("ps", "-aq").stdout.split():
        project.docker("rm", "--force", container)


def _derived(project: SmallProject, *options: str) -> str:
    """Build an image on top of one of imgbuild's, as users do; it inherits every label."""
    folder = project.root / "theirs"
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(f"FROM {TAG}\nENV THEIRS=1\n")
    result = project.docker("build", "-q", *options, str(folder), code=0)
    return result.stdout.strip()


def _foreign(project: SmallProject) -> dict[str, str]:
    """Make what is none of imgbuild's business, some of it much like what is."""
    sleep = ("--network=none", TAG, "sleep", "600")
    theirs = {
        "nameless": _derived(project),
        "named": _derived(project, "--label=x=1", "--tag=theirs/app:1"),
        "user's": project.docker("run", "-d", *sleep).stdout.strip(),
        "labelled": project.docker("run", "-d", "--label=imgbuild-not=1", *sleep).stdout.strip(),
        "network": project.docker("network", "create", "--internal", "theirs").stdout.strip(),
        "volume": project.docker("volume", "create", "imgbuild-theirs").stdout.strip(),
    }
    assert all(theirs.values()), theirs
    return theirs


def _everything(project: SmallProject) -> set[str]:
    listings = (("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q"), ("images", "-aq"))
    found = [project.docker(*words, *_no_trunc(words)).stdout.split() for words in listings]
    return {one for listing in found for one in listing}


def _no_trunc(words: tuple[str, ...]) -> tuple[str, ...]:
    return () if words[0] == "volume" else ("--no-trunc",)


def _leave(project: SmallProject, value: str) -> set[str]:
    """Leave a container and a network with the label of a test run."""
    label = f"--label={CONTAINER_LABEL}={value}"
    made = (
        project.docker("run", "-d", label, "--network=none", TAG, "sleep", "600"),
        project.docker("network", "create", "--internal", label, uuid.uuid4().hex),
    )
    assert all(one.returncode == 0 for one in made), [one.stderr for one in made]
    return {one.stdout.strip() for one in made}


def test_it_removes_what_is_imgbuilds_and_nothing_else(project: SmallProject) -> None:
    _foreign(project)
    elsewhere = _leave(project, f"{NAME}@000000000000")
    theirs = _everything(project)
    old = project.named()[TAG].id
    project.docker("tag", old, "keep:1")  # a name that somebody gave the first image
    project.say("second")
    project.run(*ONE, "--no-test")
    project.docker("rmi", "keep:1")
    mine = _leave(project, f"{NAME}@{place_of(project.state / 'imgbuild')}")
    project.run("clean", "--json")
    assert _everything(project) >= theirs | mine, "showing removes nothing"
    project.run("clean", "--yes")
    left = _everything(project)
    assert not left & mine
    assert left >= theirs - {old}
    again = json.loads(project.run("clean", "--json").stdout)
    assert [one for one in again if one["kind"] == "leftovers"] == []
    project.run("clean", "--yes", "--elsewhere", "--only", "leftovers")
    assert not _everything(project) & elsewhere


def test_an_image_that_failed_its_tests_goes(project: SmallProject) -> None:
    suite = project.root / "tests" / "image" / "test_files.py"
    whole = suite.read_text()
    suite.write_text(whole + "\ndef test_no(host):\n    assert False\n")
    project.say("failing")
    project.run(*ONE, code=1)
    built = json.loads(project.run(*ONE, "--plan", "--json").stdout)[0]["image_id"]
    suite.write_text(whole)
    assert f"({NAME})" in project.run("clean", "--only", "untagged").stdout
    assert built in _everything(project)
    project.run("clean", "--yes", "--only", "untagged")
    assert built not in _everything(project)


def test_named_images_go_only_when_asked_for_and_not_while_in_use(project: SmallProject) -> None:
    project.run(*ONE)
    names = set(project.named())
    project.run("clean", "--yes")
    assert set(project.named()) == names
    used = project.docker("run", "-d", "--network=none", TAG, "sleep", "600").stdout.strip()
    result = project.run("clean", "--yes", "--only", "images", code=1)
    assert "it is in use" in result.stdout
    assert set(project.named()) == names
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
    assert theirs not in {image.id for image in project.named().values()}


def test_the_build_cache_goes_only_on_request(project: SmallProject) -> None:
    project.run(*ONE, "--no-test")
    project.run("clean", "--yes")
    assert json.loads(project.run("clean", "--only", "build-cache", "--json").stdout)
    project.run("clean", "--build-cache", "--yes")
    assert json.loads(project.run("clean", "--only", "build-cache", "--json").stdout) == []
