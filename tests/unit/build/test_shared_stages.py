"""A lock is installed once for all stacks of one bake."""

from pathlib import Path

import pytest

from imgbuild.build.shared_stages import share_packages
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.engine.bake import BakeTarget, bake_definition
from imgbuild.matrix.images import Image
from imgbuild.project import Project


@pytest.fixture
def stacks() -> dict[str, str]:
    return {
        "tf-2.2-cpu-debian": "debian",
        "tf-2.3-cpu-debian": "debian",
        "tf-2.2-cpu-ubuntu": "ubuntu",
    }


@pytest.fixture
def targets(stacks: dict[str, str], images: dict[str, Image], project: Project) -> list[BakeTarget]:
    return [
        BakeTarget(name, Path("images"), dockerfile_path(images[name], project.dockerfiles))
        for name in stacks
    ]


def test_another_stack_takes_what_the_first_one_makes(
    targets: list[BakeTarget], stacks: dict[str, str]
) -> None:
    shared = {target.name: target for target in share_packages(targets, stacks)}
    assert shared["tf-2.2-cpu-debian"].contexts == {}
    assert shared["tf-2.3-cpu-debian"].contexts == {}  # BuildKit itself sees what is equal
    assert shared["tf-2.2-cpu-ubuntu"].contexts == {
        "packages": "target:tf-2.2-cpu-debian-packages",
        "packages-common": "target:tf-2.2-cpu-debian-packages-common",
        "packages-numpy": "target:tf-2.2-cpu-debian-packages-numpy",
        "packages-scipy": "target:tf-2.2-cpu-debian-packages-scipy",
        "packages-tensorflow": "target:tf-2.2-cpu-debian-packages-tensorflow",
    }
    linked = shared["tf-2.2-cpu-debian-packages-numpy"]
    assert (linked.target, linked.linked, linked.output) == ("packages-numpy", True, "")


def test_within_one_stack_nothing_is_linked(
    targets: list[BakeTarget], stacks: dict[str, str]
) -> None:
    assert share_packages(targets[:2], stacks) == targets[:2]
    assert share_packages(targets[2:], stacks) == targets[2:]


def test_a_linked_target_is_no_result_of_the_bake(
    targets: list[BakeTarget], stacks: dict[str, str]
) -> None:
    definition = bake_definition(share_packages(targets, stacks))
    wanted = definition["group"]["default"]
    assert wanted == {"targets": ["tf-2_2-cpu-debian", "tf-2_2-cpu-ubuntu", "tf-2_3-cpu-debian"]}
    described = definition["target"]["tf-2_2-cpu-debian-packages"]
    assert isinstance(described, dict)
    assert "output" not in described
    ubuntu = definition["target"]["tf-2_2-cpu-ubuntu"]
    assert isinstance(ubuntu, dict)
    assert ubuntu["contexts"]["packages"] == "target:tf-2_2-cpu-debian-packages"
