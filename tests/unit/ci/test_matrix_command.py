"""``imgbuild matrix``: its options together, and what it refuses."""

import json
from pathlib import Path

import pytest
from conftest import ROOT
from git_checkout import GitCheckout, checkout, committed
from project_copy import NO_ENGINE, command

from imgbuild.errors import InputError, MachineError

__all__ = ["checkout", "committed"]


def run(*options: str, project: Path = ROOT, **env: str) -> str:
    words = ("matrix", *options, "--project", str(project))
    return command(*words, env={**NO_ENGINE, **env}).stdout


def test_github_since_a_revision_without_gpus_and_a_drifted_dockerfile(
    checkout: GitCheckout,
) -> None:
    options = ("--format", "github", "--without-gpu", "--changed-since", "HEAD")
    assert run(*options, project=checkout.root) == '{"include":[]}\n'
    checkout.replace("images/templates/partials/mpi-index.j2", "sh /run/mpi", "sh -x /run/mpi")
    with pytest.raises(InputError, match="imgbuild render"):
        run(*options, project=checkout.root)
    checkout.render()
    text = run(*options, project=checkout.root)
    assert text.count("\n") == 1
    assert [one["name"] for one in json.loads(text)["include"]] == [
        image.name
        for image in checkout.images
        if image.mpi.origin == "index" and image.variant == "cpu"
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--shard x", "--shard 'x'"),
        ("--shard 1/4 --shards 4", "choose one"),
        ("--from x", "--from needs --missing"),
        ("--missing", "publishing"),
        ("--gpu --without-gpu", "leaves nothing"),
    ],
)
def test_wrong_input_is_refused(options: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        run(*options.split())


def test_a_registry_that_cannot_be_reached(tmp_path: Path) -> None:
    quick = tmp_path / "settings.yaml"
    quick.write_text("publishing: {attempts: 1, first_wait: 0}\n", encoding="utf-8")
    with pytest.raises(MachineError, match="localhost:1"):
        run("--missing", "--from", "localhost:1/x", IMGBUILD_SETTINGS=str(quick))
