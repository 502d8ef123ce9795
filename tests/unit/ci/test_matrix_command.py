"""``imgbuild matrix`` as a CI job calls it: one process, no engine, exit codes."""

import json
import subprocess
from pathlib import Path

import pytest
from git_checkout import GitCheckout, commit, git_checkout
from project_copy import NO_ENGINE, imgbuild

from imgbuild.project import Project
from imgbuild.settings import Settings


@pytest.fixture(scope="module")
def checkout(project: Project, tmp_path_factory: pytest.TempPathFactory) -> GitCheckout:
    """Return a checkout whose last commit changed the MPI of some images."""
    made = git_checkout(project, tmp_path_factory.mktemp("cli") / "checkout", Settings())
    made.replace("images/templates/partials/mpi-index.j2", "sh /run/mpi", "sh -x /run/mpi")
    made.render()
    commit(made.root)
    return made


@pytest.fixture(scope="module")
def intelmpi(checkout: GitCheckout) -> list[str]:
    """Return the images whose MPI that is, in the order of the matrix."""
    return [image.name for image in checkout.images if image.mpi.origin == "index"]


def _matrix(
    checkout: GitCheckout, *options: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    folder = checkout.root.parent
    own = {
        **NO_ENGINE,
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return imgbuild(checkout.root, "matrix", *options, env={**own, **variables})


def _output(checkout: GitCheckout, *options: str) -> str:
    result = _matrix(checkout, *options)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_github_since_a_revision(checkout: GitCheckout, intelmpi: list[str]) -> None:
    text = _output(checkout, "--format", "github", "--changed-since", "HEAD~1")
    assert text.count("\n") == 1
    assert [one["name"] for one in json.loads(text)["include"]] == intelmpi
    assert _output(checkout, "--format", "github", "--changed-since", "HEAD") == '{"include":[]}\n'


def test_images_for_gpus_are_left_out(checkout: GitCheckout) -> None:
    listed = [one["name"] for one in json.loads(_output(checkout, "--without-gpu"))]
    assert listed == [image.name for image in checkout.images if image.variant == "cpu"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--changed-since", "nowhere"), "fetch-depth: 0"),
        (("--shard", ""), "The value after --shard is empty"),
        (("--shard", "x"), "--shard 'x'"),
        (("--shard", "1/4", "--shards", "4"), "choose one"),
        (("--from", "x"), "--from needs --missing"),
        (("--missing", "--from", "x"), "--from: 'x' is not HOST"),
        (("--missing",), "publishing"),
        (("--gpu", "--without-gpu"), "leaves nothing"),
        (("--name", "tf-2.2-cpu-debain"), "tf-2.2-cpu-debian"),
    ],
)
def test_wrong_input_is_one_paragraph_and_exit_code_2(
    checkout: GitCheckout, options: tuple[str, ...], said: str
) -> None:
    result = _matrix(checkout, *options)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert said in result.stderr


def test_an_unreachable_registry_is_exit_code_3(checkout: GitCheckout, tmp_path: Path) -> None:
    quick = tmp_path / "settings.yaml"
    quick.write_text("publishing: {attempts: 1, first_wait: 0}\n", encoding="utf-8")
    options = ("--missing", "--from", "localhost:1/x")
    result = _matrix(checkout, *options, IMGBUILD_SETTINGS=str(quick))
    assert (result.returncode, result.stdout) == (3, "")


def test_a_drifted_dockerfile_is_exit_code_2(checkout: GitCheckout, tmp_path: Path) -> None:
    with checkout.copy(tmp_path) as other:
        other.replace("images/templates/partials/mpi-index.j2", "sh -x /run/mpi", "sh -e /run/mpi")
        result = _matrix(other, "--format", "github")
    assert (result.returncode, result.stdout) == (2, "")
    assert "imgbuild render" in result.stderr
