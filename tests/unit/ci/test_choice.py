"""The images that are chosen: changed, missing, both, and in shards; and the bake definition."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from git_checkout import GitCheckout, git_checkout
from memory_registry import MemoryRegistry

from imgbuild.ci import choice, missing
from imgbuild.ci.bake import bake_text
from imgbuild.ci.choice import SELECTED, Choice, Wanted, choose
from imgbuild.ci.listed import jobs
from imgbuild.ci.missing import NEVER, NOT_MADE, OTHER, missing_in
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.inputs.base import BaseLayout
from imgbuild.matrix.images import Image, whole_family
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import named_images
from imgbuild.matrix.tags import INDEX_TAG
from imgbuild.plan import inputs
from imgbuild.project import Project
from imgbuild.publishing.artifact import put_artifact
from imgbuild.publishing.index import ARTIFACT_TYPE, index_of
from imgbuild.publishing.record import Record
from imgbuild.registry.client import RegistryClient
from imgbuild.settings import Settings

ONE, TWO, GPU = "tf-2.2-cpu-debian", "tf-2.3-cpu-debian", "tf-2.2-gpu-ubuntu"
WHERE = "registry.test/team/app"


@pytest.fixture(scope="module")
def committed(project: Project, tmp_path_factory: pytest.TempPathFactory) -> GitCheckout:
    return git_checkout(project, tmp_path_factory.mktemp("committed") / "checkout", Settings())


@pytest.fixture
def checkout(committed: GitCheckout, tmp_path: Path) -> Iterator[GitCheckout]:
    with committed.copy(tmp_path) as made:
        yield made


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    """Return the registry that ``--missing`` asks."""
    made = MemoryRegistry(WHERE)

    def opened(repository: str, *_: object, **__: object) -> RegistryClient:
        assert repository == WHERE
        return made

    monkeypatch.setattr(missing, "connect", opened)
    return made


@pytest.fixture
def _base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have made its base image."""
    made = BaseLayout(Path("/base"), f"sha256:{'b' * 64}", "imgbuild/base:debian-12-b", "")
    monkeypatch.setattr(inputs, "find_base", lambda *_: made)


def _images(checkout: GitCheckout, *names: str) -> tuple[Image, ...]:
    return named_images(load_matrix(checkout.project.matrix), names)


def _chosen(checkout: GitCheckout, wanted: Wanted, *names: str) -> Choice:
    return choose(checkout.project, _images(checkout, *(names or (ONE, TWO, GPU))), wanted, print)


def _reasons(found: Choice) -> dict[str, str]:
    return {one.image.name: one.reason for one in found.listed}


def _publish(registry: RegistryClient, digests: Mapping[str, str]) -> None:
    """Let an image with this input digest be in the index, for each name."""
    sha = f"sha256:{'0' * 64}"
    records = [
        Record(
            image=name,
            digest=sha,
            image_id=sha,
            size=1,
            release="20261120.1",
            tag=f"{name}-20261120.1",
            moving=(),
            input_digest=digest,
            variant="cpu",
            stack="debian",
            pins={},
            suites=(),
            report={},
            substitutes=(),
            published="2026-11-20T00:00:00Z",
        )
        for name, digest in digests.items()
    ]
    put_artifact(registry, INDEX_TAG, ARTIFACT_TYPE, index_of(records).as_json())


def _digests(found: Choice) -> dict[str, str]:
    return {name: digest.total for name, digest in found.side.digests.items()}


def test_the_selection_alone(checkout: GitCheckout) -> None:
    found = _chosen(checkout, Wanted())
    assert _reasons(found) == dict.fromkeys((GPU, ONE, TWO), SELECTED)
    assert found.shards is None


def test_a_digest_is_told_where_it_is_known(checkout: GitCheckout) -> None:
    digests = {one.image.name: one.digest for one in _chosen(checkout, Wanted()).listed}
    assert digests[ONE] is None  # its base is made by who builds first
    assert str(digests[GPU]).startswith("sha256:")


@pytest.mark.usefixtures("_base")
def test_missing_by_name_and_by_digest(checkout: GitCheckout, registry: MemoryRegistry) -> None:
    wanted = Wanted(missing=True, repository=WHERE)
    everything = _chosen(checkout, wanted)
    assert _reasons(everything) == dict.fromkeys((GPU, ONE, TWO), NEVER)
    digests = _digests(everything)
    _publish(registry, {ONE: digests[ONE], TWO: f"sha256:{'1' * 64}"})
    assert _reasons(_chosen(checkout, wanted)) == {GPU: NEVER, TWO: OTHER}
    _publish(registry, digests)
    assert _chosen(checkout, wanted).listed == ()
    assert registry.closed


def test_an_unknown_base_counts_as_missing(checkout: GitCheckout) -> None:
    registry = MemoryRegistry(WHERE)
    side = _chosen(checkout, Wanted()).side
    _publish(registry, {name: digest.total for name, digest in side.digests.items()})
    assert missing_in(registry, side, [ONE, GPU]) == {ONE: NOT_MADE}


@pytest.mark.usefixtures("_base")
def test_changed_and_missing_is_what_is_both(
    checkout: GitCheckout, registry: MemoryRegistry
) -> None:
    checkout.replace("images/templates/partials/mpi-apt.j2", "set -eu\n", "set -eux\n")
    checkout.render()
    wanted = Wanted(changed_since="HEAD", missing=True, repository=WHERE)
    both = _chosen(checkout, wanted)
    assert set(_reasons(both)) == {ONE, TWO}  # the gpu image is missing, and has not changed
    for reason in _reasons(both).values():
        assert reason == f"changed: Dockerfile: stage mpi; {NEVER}"
    _publish(registry, {ONE: _digests(both)[ONE]})
    assert set(_reasons(_chosen(checkout, wanted))) == {TWO}  # the other needs no build


def test_missing_where_no_registry_is_named(checkout: GitCheckout) -> None:
    with pytest.raises(InputError, match="--from"):
        _chosen(checkout, Wanted(missing=True))


def test_a_damaged_index_is_no_empty_one(checkout: GitCheckout, registry: MemoryRegistry) -> None:
    put_artifact(registry, INDEX_TAG, ARTIFACT_TYPE, {"schema": 0})
    with pytest.raises(CheckFailedError, match="--rebuild"):
        _chosen(checkout, Wanted(missing=True, repository=WHERE))


def test_what_else_is_to_be_told(checkout: GitCheckout) -> None:
    said: list[str] = []
    images = _images(checkout, ONE)
    choose(checkout.project, images, Wanted(changed_since="0" * 40), said.append)
    assert len(said) == 1
    assert "every image counts as changed" in said[0]


def test_images_that_are_gone_are_told(
    checkout: GitCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    family = whole_family(load_matrix(checkout.project.matrix))
    monkeypatch.setattr(choice, "whole_family", lambda _: family[1:])
    choose(checkout.project, _images(checkout, ONE), Wanted(changed_since="HEAD"), said.append)
    assert said == [f"{family[0].name} is gone from the matrix"]


def test_shards_and_one_of_them(checkout: GitCheckout) -> None:
    every = _chosen(checkout, Wanted(shards=2))
    assert every.shards is not None
    assert {one.image.name: one.shard for one in every.listed} == {
        name: shard.label for shard in every.shards for name in shard.images
    }
    for number in (1, 2):
        part = _chosen(checkout, Wanted(shard=(number, 2)))
        assert tuple(one.image.name for one in part.listed) == every.shards[number - 1].images
        assert part.shards is None


def test_a_shard_that_has_nothing_to_do(checkout: GitCheckout) -> None:
    assert _chosen(checkout, Wanted(shard=(4, 4))).listed == ()
    assert len(_chosen(checkout, Wanted(shards=4)).shards or ()) == 3
    assert _chosen(checkout, Wanted(changed_since="HEAD", shards=4)).shards == ()


def _bake(checkout: GitCheckout, found: Choice) -> dict[str, dict[str, dict[str, object]]]:
    todo = jobs(found.listed, found.shards)
    text = bake_text(found.listed, todo, found.side.digests, found.inputs, checkout.project)
    parsed: dict[str, dict[str, dict[str, object]]] = json.loads(text)
    return parsed


@pytest.mark.usefixtures("_base")
def test_bake_has_a_target_an_image_and_a_group_a_shard(checkout: GitCheckout) -> None:
    found = _chosen(checkout, Wanted(shards=3))
    definition = _bake(checkout, found)
    targets = {"tf-2_2-cpu-debian", "tf-2_3-cpu-debian", "tf-2_2-gpu-ubuntu"}
    assert {*definition["group"]["default"]["targets"]} == targets  # type: ignore[misc]
    groups = {name for name in definition["group"] if name != "default"}
    assert groups == {"shard-1-of-3", "shard-2-of-3", "shard-3-of-3"}
    one = definition["target"]["tf-2_2-cpu-debian"]
    assert one["contexts"]["base"] == "docker-image://imgbuild/base:debian-12-b"  # type: ignore[index]
    assert one["labels"]["imgbuild.input-digest"] == _digests(found)[ONE]  # type: ignore[index]
    assert "tags" not in one  # only an image that passed its suites gets a name


def test_bake_without_a_base_claims_no_digest(checkout: GitCheckout) -> None:
    definition = _bake(checkout, _chosen(checkout, Wanted(), ONE))
    one = definition["target"]["tf-2_2-cpu-debian"]
    assert "base" not in one["contexts"]  # type: ignore[operator]
    assert "imgbuild.input-digest" not in one["labels"]  # type: ignore[operator]
    assert "imgbuild.inputs" not in one["labels"]  # type: ignore[operator]


def test_bake_of_nothing(checkout: GitCheckout) -> None:
    nothing = replace(_chosen(checkout, Wanted(), ONE), listed=())
    assert _bake(checkout, nothing) == {"group": {"default": {"targets": []}}}
