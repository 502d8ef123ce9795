"""`imgbuild reproduce` takes the files of the commit that an image names, where they changed.

That the commit is read out of git is seen in tests/e2e/test_reproduce.py.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from git_checkout import GitCheckout, checkout, commit, committed

from imgbuild import reproduction
from imgbuild.build.context import BuildContext, BuildOptions
from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, NAME
from imgbuild.inputs.build_inputs import prepare_inputs
from imgbuild.plan.changes import parts_label

__all__ = ["checkout", "committed"]
IMAGE, FILE = "tf-2.2-cpu-debian", "images/files/start/set-up"


@dataclass
class Recorded:
    """A checkout, and the labels of an image that was built from its files."""

    checkout: GitCheckout

    def __post_init__(self) -> None:
        self.record()

    def context(self) -> BuildContext:
        (image,) = [one for one in self.checkout.images if one.name == IMAGE]
        settings, project = self.checkout.settings, self.checkout.project
        inputs = prepare_inputs((image,), settings, project, print, make=False)
        return BuildContext(
            project=project,
            images=(image,),
            options=BuildOptions(),
            settings=settings,
            engine=FakeEngine(),
            host=None,
            inputs=inputs,
            say=print,
        )

    def record(self) -> None:
        """Take the labels of an image that is built now."""
        context = self.context()
        self.labels = {
            NAME: IMAGE,
            INPUT_DIGEST: context.digests[IMAGE].total,
            INPUT_PARTS: parts_label(context.digests[IMAGE]),
            "org.opencontainers.image.revision": context.revision or "",
            "org.opencontainers.image.base.name": "debian",
            "org.opencontainers.image.base.digest": "",
            "imgbuild.input.base": "bootstrapped",
            "imgbuild.input.cpython": "source",
        }

    def inputs(self, stack: ExitStack) -> tuple[Path, str, tuple[str, ...]]:
        """Return the folder that the image is built from, the digest, and what is lacking."""
        context, item, lacking = reproduction._recorded(self.labels, self.context(), stack)
        return context.project.root, item.digest.total, lacking

    def change(self) -> None:
        path = self.checkout.root / FILE
        path.write_text(path.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")


@pytest.fixture
def recorded(checkout: GitCheckout, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(reproduction, "prepare_inputs", partial(prepare_inputs, make=False))
    monkeypatch.setattr(
        reproduction, "pinned_bases", lambda _, context: (context.settings, context.inputs)
    )
    return Recorded(checkout)


def test_a_checkout_that_has_the_inputs_is_taken(recorded: Recorded) -> None:
    (recorded.checkout.root / "README.md").write_text("changed\n", encoding="utf-8")
    commit(recorded.checkout.root)
    with ExitStack() as stack:
        found = recorded.inputs(stack)
        assert found == (recorded.checkout.root, recorded.labels[INPUT_DIGEST], ())


def test_files_that_were_never_committed_are_lacking(recorded: Recorded) -> None:
    recorded.change()
    recorded.record()
    assert recorded.labels["org.opencontainers.image.revision"].endswith("-dirty")
    recorded.change()
    commit(recorded.checkout.root)
    with ExitStack() as stack:
        root, digest, (lacking,) = recorded.inputs(stack)
        assert root != recorded.checkout.root
        assert digest != recorded.labels[INPUT_DIGEST]
        assert lacking.startswith("files/start: ")
