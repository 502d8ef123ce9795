"""`imgbuild push`: which of the named images are of the matrix, and which are extended ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.engine.types import StoredImage
from imgbuild.publish import push as push_module
from imgbuild.publish.push import PushOptions, PushResult
from support.extended_images import LABELS, REFERENCE
from support.fake_engine import FakeEngine
from support.project_copy import command

FAMILY, ID = "imgbuild/tensorflow:2.2-cpu", "sha256:" + "1" * 64
TO = ("--to", "registry.test/team/train")


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[PushOptions]:
    """Return what is pushed, of an engine with an extended image and one of the matrix."""
    other = StoredImage("sha256:" + "2" * 64, (FAMILY, "me/own:1"), {"imgbuild.name": "x"})
    engine, found = FakeEngine([StoredImage(ID, (REFERENCE,), LABELS), other]), list[PushOptions]()

    @contextmanager
    def opened(_: object) -> Iterator[FakeEngine]:
        yield engine

    def push_images(_: Project, options: PushOptions, __: object) -> PushResult:
        found.append(options)
        return PushResult("registry.test/team/train", (), {})

    monkeypatch.setattr("imgbuild.engine.client.open_engine", opened)
    monkeypatch.setattr(push_module, "push_images", push_images)
    return found


def test_push_finds_extended_images(pushed: list[PushOptions]) -> None:
    command("push", REFERENCE, *TO)
    command("push", REFERENCE, *TO)
    assert [one.extended for one in pushed] == [(REFERENCE,)] * 2


def test_push_finds_images_of_the_matrix(pushed: list[PushOptions]) -> None:
    for words in ((FAMILY,), ("2.2-cpu",), ("--tf", "2.2", "--cpu")):
        command("push", *words, *TO)
    assert {one.extended for one in pushed} == {()}
    assert {one.images[0].minor for one in pushed} == {"2.2"}


@pytest.mark.parametrize("words", [(REFERENCE, "2.2-cpu"), (REFERENCE, FAMILY)])
def test_push_mixes_no_kinds(pushed: list[PushOptions], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="separate commands"):
        command("push", *words, *TO)
    assert pushed == []


@pytest.mark.parametrize("name", ["me/own:1", "me/gone:1"])
def test_push_refuses_unknown_images(pushed: list[PushOptions], name: str) -> None:
    with pytest.raises(InputError, match="imgbuild extend"):
        command("push", name, *TO)
    assert pushed == []


def test_extended_image_is_refused_beside_options(pushed: list[PushOptions]) -> None:
    with pytest.raises(InputError):
        command("push", REFERENCE, "--tf", "2.2", *TO)
    assert pushed == []
