"""Remote stores, with a real engine and a real registry: nothing is built twice.

The wheel is no Horovod, but it comes out of the stage that Horovod's wheel comes from.
"""

import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from copied_checkout import remove_images
from own_registry import free_port, own_registry
from publishing_project import ONE, PublishingProject, publishing_project

from imgbuild.engine.client import Engine

REPOSITORY = "imgbuild-cached/tensorflow"
NAME = "tf-1.10-cpu-debian"
WHEEL = "horovod-0.0.0-py3-none-any.whl"
_TEMPLATE = f"""\
FROM base AS os
FROM os AS compiled
COPY files/{WHEEL} /
RUN --network=none echo the wheel is compiled
FROM scratch AS horovod-wheel
COPY --from=compiled /{WHEEL} /
FROM os AS final
RUN --network=none head -c 60000 /dev/urandom > /bytes
RUN --network=none --mount=type=bind,from=horovod-wheel,target=/run/wheels ls /run/wheels > /wheels
ENV WORD=first
"""


@pytest.fixture
def project(tmp_path: Path, host: str | None, engine: Engine) -> Iterator[PublishingProject]:
    """Give a checkout of one image, on a machine with a cache with a base image at most."""
    made = publishing_project(tmp_path, host, local=REPOSITORY, template=_TEMPLATE)
    with zipfile.ZipFile(made.root / "images" / "files" / WHEEL, "w") as wheel:
        wheel.writestr("horovod-0.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    made.render()
    remove_images(engine, REPOSITORY)
    yield made
    remove_images(engine, REPOSITORY)


def _build(project: PublishingProject, *options: str) -> dict[str, Any]:
    (outcome,) = project.json("build", *ONE, *options, timeout=300)
    return dict(outcome)


def _tags(engine: Engine) -> set[str]:
    return {tag for image in engine.named(REPOSITORY) for tag in image.tags}


def _another_machine(project: PublishingProject, engine: Engine, folder: Path) -> PublishingProject:
    """Forget the images, what was found in them, and the caches. Give a machine with the base."""
    remove_images(engine, REPOSITORY)
    assert project.cache
    for kept in ("imgbuild/base", "imgbuild/downloads"):
        shutil.copytree(project.cache / kept, folder / "cache" / kept, symlinks=True)
    (folder / "docker-config").mkdir()
    return replace(project, state=folder / "state", cache=folder / "cache")


def _is_taken_over(project: PublishingProject, cache: str, engine: Engine) -> None:
    """Fail unless a machine without anything takes image, verdict and base from the cache."""
    plan = project.run("build", *ONE, "--plan", "--cache-from", cache)
    assert f"would be taken from {cache}" in plan.stdout, plan.stderr
    assert not _tags(engine)
    outcome = _build(project, "--cache-from", cache)
    assert (outcome["action"], outcome["state"]) == ("tag", "done")
    assert outcome["reason"] == f"taken from {cache}"
    assert outcome["test_seconds"] == 0
    assert not project.log()
    assert _tags(engine) == {*outcome["tags"]}
    assert _build(project)["action"] == "nothing"


def _is_not_published(project: PublishingProject, host: str) -> None:
    """Fail unless what was taken over is refused until the image is made as the refusal says."""
    refused = project.push(host, code=1).stderr
    (remedy,) = re.findall("nothing says that it was built here: run `docker (.+?)`", refused)
    assert "results of suites that did not run here" in refused
    project.docker(*remedy.split(), code=0)
    assert _build(project)["action"] == "build"
    assert "nothing says" not in project.push(host, code=None).stderr


def test_a_registry(project: PublishingProject, engine: Engine, tmp_path: Path) -> None:
    with own_registry(tmp_path / "registry") as registry:
        cache = f"{registry.host}/ci/cache"
        said = project.run("build", *ONE, "--cache-to", cache, timeout=300).stderr
        assert f"Kept in {cache}: {NAME}, {WHEEL}" in said
        assert _tags(engine)
        second = _another_machine(project, engine, tmp_path / "second")
        _is_taken_over(second, cache, engine)
        _is_not_published(second, registry.host)
        third = _another_machine(project, engine, tmp_path / "third")
        third.say("second")  # another image with the same wheel
        assert _build(third, "--cache-from", cache)["action"] == "build"
        (wheel,) = (tmp_path / "third").rglob(WHEEL)
        assert "taken/horovod-wheels" in wheel.as_posix()
        assert "the wheel is compiled" not in third.log()


def test_a_registry_that_is_not_there(project: PublishingProject, engine: Engine) -> None:
    cache = f"127.0.0.1:{free_port()}/ci/cache"
    said = project.run("build", *ONE, "--cache-from", cache, "--cache-to", cache).stderr
    assert said.count("continuing without it") == 1, said
    assert f"The repository {cache} cannot be " in said
    assert _tags(engine)
