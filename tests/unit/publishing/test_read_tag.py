"""Asking the running image: one container, removed in every case, and a difference is an error."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from test_answers import answers

from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import planned_tags
from imgbuild.publishing import read_tag
from imgbuild.publishing.read_tag import PROGRAM, docker_exec, read_tags
from imgbuild.suites.container import CONTAINER_LABEL, label_of

ID = "sha256:id"
RELEASE = "20261120.1"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine([StoredImage(ID)])


class Saying:
    """Runs no command, and says what it was given."""

    def __init__(self, said: str, engine: FakeEngine) -> None:
        self.said = said
        self.engine = engine
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, container: str, command: Sequence[str]) -> str:
        assert self.engine.running.keys() == {container}
        one = self.engine.running[container]
        assert (one.image, one.command) == (ID, ("sleep", "infinity"))
        assert one.options.network == "none"
        self.asked.append((one.labels[CONTAINER_LABEL], *command))
        return self.said


def test_the_image_is_asked_and_the_planned_tags_are_returned(
    images: dict[str, Image], engine: FakeEngine
) -> None:
    image = images["tf-2.2-gpu-ubuntu"]
    saying = Saying(json.dumps(asdict(answers(image))), engine)
    assert read_tags(image, ID, RELEASE, engine, saying) == planned_tags(image, RELEASE)
    program = PROGRAM.read_text(encoding="utf-8")
    assert saying.asked == [(label_of(image.name), "python", "-c", program)]
    assert engine.running == {}


def test_every_difference_is_told(images: dict[str, Image], engine: FakeEngine) -> None:
    image = images["tf-2.0-gpu-ubuntu"]
    other = replace(answers(image), python="3.7.1", cuda=())
    with pytest.raises(CheckFailedError) as caught:
        read_tags(image, ID, RELEASE, engine, Saying(json.dumps(asdict(other)), engine))
    assert str(caught.value).startswith(
        f"tf-2.0-gpu-ubuntu ({ID}) is not what its tag says: python: planned py36, read py37; "
        "cuda: planned cuda10.0, read nothing. It was not published."
    )
    assert engine.running == {}


def test_only_what_a_tag_says_must_be_so(images: dict[str, Image], engine: FakeEngine) -> None:
    image = images["tf-2.2-cpu-debian"]
    scheme = image.matrix.tags.model_copy(update={"immutable": ("minor", "release"), "moving": ()})
    image = replace(image, matrix=image.matrix.model_copy(update={"tags": scheme}))
    other = replace(answers(image), python="3.7.1")
    found = read_tags(image, ID, RELEASE, engine, Saying(json.dumps(asdict(other)), engine))
    assert (found.immutable, found.moving) == ("2.2-20261120.1", ())


def test_an_image_that_says_nothing(images: dict[str, Image], engine: FakeEngine) -> None:
    image = images["tf-2.2-cpu-debian"]
    with pytest.raises(CheckFailedError, match="does not say what is in it: Expecting value"):
        read_tags(image, ID, RELEASE, engine, Saying("", engine))
    assert engine.running == {}


@pytest.mark.parametrize("error", [CheckFailedError, MachineError, KeyboardInterrupt])
def test_the_container_goes_in_every_case(
    images: dict[str, Image], engine: FakeEngine, error: type[BaseException]
) -> None:
    def execute(_: str, __: Sequence[str]) -> str:
        raise error

    with pytest.raises(error):
        read_tags(images["tf-2.2-cpu-debian"], ID, RELEASE, engine, execute)
    assert engine.running == {}
    assert engine.calls[-1] == "remove_container"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the docker client of this test: a script."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path / "docker"


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_commands_run_by_the_docker_client(client: Path) -> None:
    _script(client, 'echo "$DOCKER_HOST" "$@"')
    execute = docker_exec("unix:///there")
    assert execute("c1", ["python", "-c", "x"]) == "unix:///there exec c1 python -c x\n"


def test_a_command_that_fails(client: Path) -> None:
    _script(client, "echo some words; echo no such program: python >&2; exit 127")
    with pytest.raises(CheckFailedError, match=r"\(exit code 127\): no such program: python"):
        docker_exec(None)("c1", ["python"])


def test_a_command_that_does_not_end(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_tag, "SECONDS", 0.2)
    _script(client, "exec sleep 30")
    with pytest.raises(CheckFailedError, match=r"did not say in 0\.2 s what is in it"):
        docker_exec(None)("c1", ["python"])


def test_without_a_docker_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="No docker client on PATH"):
        docker_exec(None)
