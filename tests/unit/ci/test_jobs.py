"""The images that CI has to build: changed, missing, both, and dealt out to shards."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from git_checkout import GitCheckout, checkout, committed
from memory_registry import MemoryRegistry

from imgbuild.ci.changed import look_at_inputs, this_checkout
from imgbuild.ci.jobs import (
    NOT_PUBLISHED,
    JobList,
    JobOptions,
    parse_shard,
    select_jobs,
    shards,
)
from imgbuild.errors import InputError
from imgbuild.inputs import build_inputs as inputs
from imgbuild.inputs.base import BaseRecipe
from imgbuild.inputs.oci_layout import BaseLayout
from imgbuild.matrix.images import Image
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import Selection, select_images
from imgbuild.matrix.tags import input_tag
from imgbuild.registry.repository_client import RegistryClient

__all__ = ["checkout", "committed"]

ONE, TWO, GPU = "tf-2.2-cpu-debian", "tf-2.3-cpu-debian", "tf-2.2-gpu-ubuntu"
WHERE = "registry.test/team/app"
MADE = BaseLayout(Path("/base"), f"sha256:{'b' * 64}", "imgbuild/base:debian-12-b")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    """Return the registry that ``--missing`` asks."""
    made = MemoryRegistry(WHERE)

    def opened(repository: str, *_: object, **__: object) -> RegistryClient:
        assert repository == WHERE
        return made

    monkeypatch.setattr("imgbuild.registry.repository_client.connect", opened)
    return made


@pytest.fixture
def _base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have made its base image."""
    monkeypatch.setattr(inputs, "find_base", lambda *_: MADE)


def _images(checkout: GitCheckout, *names: str) -> tuple[Image, ...]:
    return select_images(load_matrix(checkout.project.matrix), Selection(names=names))


def _chosen(checkout: GitCheckout, options: JobOptions, *names: str) -> JobList:
    return select_jobs(
        checkout.project, _images(checkout, *(names or (ONE, TWO, GPU))), options, print
    )


def _reasons(found: JobList) -> dict[str, str]:
    return {one.image.name: one.reason for one in found.listed}


def _publish(registry: MemoryRegistry, digests: Mapping[str, str]) -> None:
    """Let an image with this input digest be published, for each name."""
    for digest in digests.values():
        registry.add_image(input_tag(digest))


def _digests(checkout: GitCheckout, *names: str) -> dict[str, str]:
    images = _images(checkout, *(names or (ONE, TWO, GPU)))
    seen = look_at_inputs(checkout.project, images, checkout.settings)
    digests = this_checkout(checkout.project, images, seen).digests
    return {name: digest.total for name, digest in digests.items()}


def test_a_digest_is_told_where_it_is_known(checkout: GitCheckout) -> None:
    digests = {one.image.name: one.digest for one in _chosen(checkout, JobOptions()).listed}
    assert digests[ONE] is None  # its base is made by who builds first
    assert str(digests[GPU]).startswith("sha256:")


@pytest.mark.usefixtures("_base")
def test_missing_by_name_and_by_digest(checkout: GitCheckout, registry: MemoryRegistry) -> None:
    options = JobOptions(missing=True, repository=WHERE)
    everything = _chosen(checkout, options)
    assert _reasons(everything) == dict.fromkeys((GPU, ONE, TWO), NOT_PUBLISHED)
    digests = _digests(checkout)
    _publish(registry, {ONE: digests[ONE], TWO: f"sha256:{'1' * 64}"})
    assert _reasons(_chosen(checkout, options)) == dict.fromkeys((GPU, TWO), NOT_PUBLISHED)
    _publish(registry, digests)
    assert _chosen(checkout, options).listed == ()
    assert registry.closed


def test_missing_bootstraps_the_base_as_a_build_does(
    checkout: GitCheckout, registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "find_base", lambda *_: MADE)
    _publish(registry, {ONE: _digests(checkout)[ONE]})
    made: list[str] = []

    def bootstrap(recipe: BaseRecipe, *_: object, **__: object) -> BaseLayout:
        made.append(recipe.os_name)
        return MADE

    monkeypatch.setattr(inputs, "find_base", lambda *_: None)
    monkeypatch.setattr(inputs, "bootstrap_base", bootstrap)
    found = _chosen(checkout, JobOptions(missing=True, repository=WHERE), ONE, TWO)
    assert _reasons(found) == {TWO: NOT_PUBLISHED}
    assert str(found.listed[0].digest).startswith("sha256:")
    assert made == ["debian-12"]


@pytest.mark.usefixtures("_base")
def test_changed_and_missing_is_what_is_both(
    checkout: GitCheckout, registry: MemoryRegistry
) -> None:
    checkout.replace("images/templates/partials/mpi-apt.j2", "set -eu\n", "set -eux\n")
    checkout.render()
    options = JobOptions(changed_since="HEAD", missing=True, repository=WHERE)
    both = _chosen(checkout, options)
    assert set(_reasons(both)) == {ONE, TWO}  # the gpu image is missing, and has not changed
    for reason in _reasons(both).values():
        assert reason == f"changed: Dockerfile: stage mpi; {NOT_PUBLISHED}"
    _publish(registry, {ONE: _digests(checkout)[ONE]})
    assert set(_reasons(_chosen(checkout, options))) == {TWO}  # the other needs no build


def test_shards_and_one_of_them(checkout: GitCheckout) -> None:
    every = _chosen(checkout, JobOptions(shards=2))
    assert [job.shard for job in every.jobs] == ["1/2", "2/2"]
    assert {one.image.name: one.shard for one in every.listed} == {
        image.name: job.shard for job in every.jobs for image in job.images
    }
    for number, job in enumerate(every.jobs, 1):
        part = _chosen(checkout, JobOptions(shard=(number, 2)))
        assert [(one.image, one.shard) for one in part.listed] == [
            (image, job.shard) for image in job.images
        ]
        assert [one.names for one in part.jobs] == [image.name for image in job.images]
    assert _chosen(checkout, JobOptions(shard=(4, 4))) == JobList((), ())
    assert len(_chosen(checkout, JobOptions(shards=4)).jobs) == 3
    assert _chosen(checkout, JobOptions(changed_since="HEAD", shards=4)).jobs == ()


@pytest.mark.parametrize("count", [1, 2, 3, 8, 34, 100])
def test_each_image_is_in_exactly_one_shard(images: dict[str, Image], count: int) -> None:
    found = shards(images.values(), count)
    assert sorted(image.name for shard in found for image in shard) == sorted(images)
    assert len(found) == min(count, len(images))
    assert all(found)
    assert found == shards([*images.values()], count)
    order = [*images]
    for shard in found:
        names = [image.name for image in shard]
        assert names == sorted(names, key=order.index)
    assert max(map(len, found)) - min(map(len, found)) <= 4


@pytest.mark.parametrize("count", [2, 4, 8])
def test_images_of_one_stack_python_and_tensorflow_stay_together(
    images: dict[str, Image], count: int
) -> None:
    found = [
        {(image.stack, image.version_of("python"), image.tensorflow) for image in shard}
        for shard in shards(images.values(), count)
    ]
    for number, families in enumerate(found):
        assert not any(families & others for others in found[number + 1 :])


@pytest.mark.parametrize(
    "text", ["0/4", "5/4", "x", "", "1", "/4", "1/", "1/0", "-1/4", "1/4/4", "1/1001", "\uff11/4"]
)
def test_a_wrong_shard_is_refused(text: str) -> None:
    assert (parse_shard("1/4"), parse_shard("4/4")) == ((1, 4), (4, 4))
    with pytest.raises(InputError, match=r"such as 1/4"):
        parse_shard(text)
