"""Remote stores, with a real engine and a real registry: nothing is built twice."""

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cached_project import (
    NAME,
    REPOSITORY,
    WHEEL,
    CachedProject,
    another_machine,
    cached_project,
    forget,
    stored,
)
from test_registry_base import registry  # noqa: F401  # the fixture

from imgbuild.engine.client import Engine


@pytest.fixture
def project(tmp_path: Path, host: str | None, engine: Engine) -> Iterator[CachedProject]:
    forget(engine)
    yield cached_project(tmp_path, host)
    forget(engine)


def _tags(engine: Engine) -> set[str]:
    return {tag for image in stored(engine) for tag in image.tags}


def _is_taken_over(project: CachedProject, cache: str, engine: Engine) -> None:
    """Fail unless a machine without anything takes image, verdict and base from the cache."""
    plan = project.run("build", "--tf", "1.10", "--plan", "--cache-from", cache)
    assert f"would be taken from {cache}" in plan.stdout, plan.stderr
    assert not stored(engine)
    outcome, _ = project.build("--cache-from", cache)
    assert (outcome["action"], outcome["state"]) == ("name", "done")
    assert outcome["reason"] == f"taken from {cache}"
    assert outcome["test_seconds"] == 0
    assert not project.log()
    assert _tags(engine) == {*outcome["tags"]}
    again, _ = project.build()
    assert again["action"] == "nothing"


def _is_not_published(project: CachedProject, host: str) -> None:
    """Fail unless what was taken over is refused until the image is made as the refusal says."""
    push = ("push", "--tf", "1.10", "--to", f"{host}/ml/images", "--allow-substituted")
    refused = project.run(*push, code=1).stderr
    (remedy,) = re.findall("nothing says that it was built here: run `docker (.+?)`", refused)
    assert "results of suites that did not run here" in refused
    project.docker(*remedy.split(), code=0)
    outcome, _ = project.build()
    assert outcome["action"] == "build"
    assert "nothing says" not in project.run(*push, code=None).stderr


def test_a_registry(
    project: CachedProject,
    engine: Engine,
    tmp_path: Path,
    registry: str,  # noqa: F811
) -> None:
    cache = f"{registry}/ci/cache"
    built, said = project.build("--cache-to", cache)
    assert f"Kept in {cache}: {NAME}, {WHEEL}" in said.stderr
    assert _tags(engine) == {*built["tags"]}
    second = another_machine(project, engine, tmp_path / "second")
    _is_taken_over(second, cache, engine)
    _is_not_published(second, registry)
    third = another_machine(project, engine, tmp_path / "third")
    third.say("second")  # another image with the same wheel
    changed, _ = third.build("--cache-from", cache)
    assert changed["action"] == "build"
    assert third.wheels("taken/horovod-wheels") == [WHEEL]
    assert third.wheels() == []
    assert "the wheel is compiled" not in third.log()


def test_a_registry_that_is_not_there(project: CachedProject, engine: Engine) -> None:
    with closing(socket.socket()) as nobody:  # it is bound, and does not listen
        nobody.bind(("127.0.0.1", 0))
        cache = f"127.0.0.1:{nobody.getsockname()[1]}/ci/cache"
        outcome, said = project.build("--cache-from", cache, "--cache-to", cache)
    assert outcome["state"] == "done"
    assert said.stderr.count("going on without it") == 1, said.stderr
    assert f"The repository {cache} cannot be " in said.stderr
    assert _tags(engine) == {*outcome["tags"]}
    assert all(tag.startswith(REPOSITORY) for tag in outcome["tags"])
