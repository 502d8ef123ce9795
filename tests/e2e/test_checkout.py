"""What the tests make does not depend on a user's environment, and what they remove is theirs."""

import os

import pytest
from checkout import Checkout
from copied_checkout import remove_images

from imgbuild.dockerfile.labels import REPOSITORY
from imgbuild.engine.types import StoredImage
from unit.fake_engine import FakeEngine

MINE, OTHERS = "imgbuild-mine/tensorflow", "imgbuild-others/tensorflow"


def test_the_user_s_own_imgbuild_is_another(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that name another engine would let a test stop that one."""
    monkeypatch.setenv("IMGBUILD_LOG_FORMAT", "json")
    monkeypatch.setenv("IMGBUILD_PROJECT", "/nowhere")
    monkeypatch.setenv("IMGBUILD_SETTINGS", "/nowhere/settings.yaml")
    monkeypatch.setenv("IMGBUILD_MIRRORS", "pypi=http://127.0.0.1:9/")
    found = {name for name in checkout.environment if name.startswith("IMGBUILD_")}
    assert found == {"IMGBUILD_MIRRORS"}
    assert checkout.environment["PATH"] == os.environ["PATH"]
    checkout.run("list", "--json")


def test_only_images_of_one_repository_are_removed() -> None:
    """Another checkout may build beside the tests: its images are new, too, and not all named."""
    label = {"imgbuild.name": "tf-2.2-cpu-debian"}
    others = [
        StoredImage("sha256:3", (f"{OTHERS}:2.2-cpu-debian",), {**label, REPOSITORY: OTHERS}),
        StoredImage("sha256:4", (), {**label, REPOSITORY: OTHERS}),
        StoredImage("sha256:5", (f"{MINE}-too:2.2",), {**label, REPOSITORY: f"{MINE}-too"}),
    ]
    mine = [
        StoredImage("sha256:1", (f"{MINE}:2.2-cpu-debian",), {**label, REPOSITORY: MINE}),
        StoredImage("sha256:2", (), {**label, REPOSITORY: MINE}),
    ]
    engine = FakeEngine([*mine, *others])
    remove_images(engine, MINE)
    assert [*engine.stored.values()] == others
