"""What the tests make does not depend on a user's environment, and what they remove is theirs."""

import os

import pytest

from imgbuild.dockerfile.labels import REPOSITORY
from imgbuild.engine.types import StoredImage
from support.checkout import Checkout
from support.copied_checkout import remove_images
from support.fake_engine import FakeEngine

MINE, OTHERS = "imgbuild-mine/tensorflow", "imgbuild-others/tensorflow"


def test_the_user_s_own_imgbuild_is_another(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that name another engine would let a test stop that one."""
    for name in ("PROJECT", "SETTINGS", "MIRRORS"):
        monkeypatch.setenv(f"IMGBUILD_{name}", "/nowhere")
    found = {n: value for n, value in checkout.environment.items() if n.startswith("IMGBUILD_")}
    assert found == {"IMGBUILD_MIRRORS": "/nowhere", "IMGBUILD_PROJECT": str(checkout.root)}
    assert checkout.environment["PATH"] == os.environ["PATH"]


def test_only_images_of_one_repository_are_removed() -> None:
    """Another checkout may build beside the tests: its images are new, too, and not all named."""

    def stored(number: int, repository: str, *tags: str) -> StoredImage:
        labels = {"imgbuild.name": "tf-2.2-cpu-debian", REPOSITORY: repository}
        return StoredImage(f"sha256:{number}", tags, labels)

    others = [
        stored(3, OTHERS, f"{OTHERS}:2.2-cpu"),
        stored(4, OTHERS),
        stored(5, f"{MINE}-too", f"{MINE}-too:2.2"),
    ]
    engine = FakeEngine([stored(1, MINE, f"{MINE}:2.2-cpu"), stored(2, MINE), *others])
    remove_images(engine, MINE)
    assert [*engine.stored.values()] == others
