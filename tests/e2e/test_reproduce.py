"""`imgbuild verify --rebuild` on both image stores: what it finds, and what it leaves."""

import subprocess
from pathlib import Path

import pytest

from imgbuild.dockerfile.labels import REPOSITORY as LABEL
from support.own_registry import own_registry
from support.small_project import NAMES, REPOSITORY, SmallProject

THIS = ("--tf", "1.10")


def _images(project: SmallProject) -> set[str]:
    """Return the ids and names of all images of small projects on the engine."""
    form = ("--format", "{{.ID}} {{.Repository}}:{{.Tag}}")
    own = f"--filter=label={LABEL}={REPOSITORY}"
    return {*project.printed("images", "--no-trunc", own, *form).splitlines()}


def _commit(project: SmallProject) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message=one")):
        subprocess.run(["git", *identity, *words], cwd=project.root, check=True)


@pytest.mark.parametrize("project", ["main", "other"], indirect=True)
def test_what_differs_and_what_does_not(project: SmallProject) -> None:
    project.run("verify", "--rebuild", *THIS, code=2)  # there is no image
    project.run("build", *THIS, "--no-test")
    before = _images(project)
    (found,) = project.json("verify", "--rebuild", *THIS, code=1, timeout=300)
    assert found["lacking"] == []
    assert found["configuration"] == {}
    base, empty, files, name = found["layers"]
    assert base["same"]
    assert not files["same"]
    random = files["files"]["files/bytes"]  # of /dev/urandom
    assert {*random} >= {"content"}
    assert random["content"][0] != random["content"][1]
    assert {*name["files"]["name"]} == {"time"}
    assert all([*one] == ["time"] for one in empty["files"].values())
    assert {"name", "files", "files/xaaaa"} <= {*name["files"]}
    assert _images(project) == before
    assert project.left() == []


def test_a_published_image_and_the_commit_that_it_is_of(
    project: SmallProject, tmp_path: Path
) -> None:
    _commit(project)
    with own_registry(tmp_path / "registry") as registry:
        published = f"{registry.host}/ml/tensorflow:1.10"
        try:
            project.run("build", *THIS, "--no-test")
            project.printed("tag", f"{REPOSITORY}:1.10-cpu", published)
            project.printed("push", published)
            project.printed("rmi", published)
            project.forget()
            project.say("second")
            _commit(project)
            project.printed("pull", published)  # it is not signed, so its id is given
            pulled = project.printed("image", "inspect", "--format", "{{.Id}}", published)
            before = _images(project)
            (found,) = project.json("verify", "--rebuild", pulled, code=1)
            assert (found["image"], found["reference"]) == (NAMES[0], pulled)
            assert found["lacking"] == []
            assert found["configuration"] == {}
            assert [layer["same"] for layer in found["layers"]][0::2] == [True, False]
            assert _images(project) == before
            assert project.left() == []
        finally:
            project.docker("rmi", published)
