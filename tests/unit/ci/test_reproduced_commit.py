"""`imgbuild reproduce` takes the files of the commit that an image names, where they changed."""

from collections.abc import Mapping
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
    """A checkout, and the labels of an image that was built from its first commit."""

    checkout: GitCheckout
    labels: Mapping[str, str]

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

    def inputs(self, stack: ExitStack) -> tuple[Path, str, tuple[str, ...]]:
        """Return the folder that the image is built from, the digest, and what is lacking."""
        context, item, lacking = reproduction._recorded(self.labels, self.context(), stack)
        return context.project.root, item.digest.total, lacking


@pytest.fixture
def recorded(checkout: GitCheckout, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(reproduction, "prepare_inputs", partial(prepare_inputs, make=False))
    monkeypatch.setattr(
        reproduction, "pinned_bases", lambda _, context: (context.settings, context.inputs)
    )
    made = Recorded(checkout, {})
    context = made.context()
    made.labels = {
        NAME: IMAGE,
        INPUT_DIGEST: context.digests[IMAGE].total,
        INPUT_PARTS: parts_label(context.digests[IMAGE]),
        "org.opencontainers.image.revision": context.revision or "",
        "org.opencontainers.image.base.name": "debian",
        "org.opencontainers.image.base.digest": "",
        "imgbuild.input.base": "bootstrapped",
        "imgbuild.input.cpython": "source",
    }
    return made


def _change(recorded: Recorded) -> None:
    path = recorded.checkout.root / FILE
    path.write_text(path.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")


def test_a_checkout_that_has_the_inputs_is_taken(recorded: Recorded) -> None:
    (recorded.checkout.root / "README.md").write_text("changed\n", encoding="utf-8")
    commit(recorded.checkout.root)
    with ExitStack() as stack:
        found = recorded.inputs(stack)
        assert found == (recorded.checkout.root, recorded.labels[INPUT_DIGEST], ())


def test_the_commit_of_then_is_taken(recorded: Recorded) -> None:
    before = (recorded.checkout.root / FILE).read_bytes()
    _change(recorded)
    commit(recorded.checkout.root)
    with ExitStack() as stack:
        root, digest, lacking = recorded.inputs(stack)
        assert root != recorded.checkout.root
        assert (root / FILE).read_bytes() == before
        assert digest == recorded.labels[INPUT_DIGEST]
        assert lacking == ()
    assert not root.exists()


def test_files_that_were_never_committed_are_lacking(recorded: Recorded) -> None:
    _change(recorded)
    context = recorded.context()
    revision = context.revision or ""
    assert revision.endswith("-dirty")
    recorded.labels = {
        **recorded.labels,
        INPUT_DIGEST: context.digests[IMAGE].total,
        INPUT_PARTS: parts_label(context.digests[IMAGE]),
        "org.opencontainers.image.revision": revision,
    }
    _change(recorded)
    commit(recorded.checkout.root)
    with ExitStack() as stack:
        root, digest, (lacking,) = recorded.inputs(stack)
        assert root != recorded.checkout.root
        assert digest != recorded.labels[INPUT_DIGEST]
        assert lacking.startswith("files/start: ")
