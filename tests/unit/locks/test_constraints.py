"""The constraints of images: what stays, what may move, and which companions work with it."""

from dataclasses import replace

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from imgbuild.core.project import Project
from imgbuild.locks.constraints import (
    NONE,
    companion_bounds,
    package_bounds,
    render_constraints,
)
from imgbuild.locks.lockfile import locked_packages
from imgbuild.matrix.images import Image

NAMES = ("tf-1.10-cpu-debian", "tf-2.2-gpu-ubuntu", "tf-2.12-gpu-debian", "tf-2.21-cpu-debian")


@pytest.mark.parametrize("name", NAMES)
def test_an_image_satisfies_its_constraints(
    name: str, images: dict[str, Image], project: Project
) -> None:
    image = images[name]
    packages = locked_packages(image, project.locks)
    text = render_constraints(image, project.locks)
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    constraints = [Requirement(line) for line in lines if line]
    assert len({one.name for one in constraints}) == len(constraints)
    for one in constraints:
        if one.name in packages:
            assert one.specifier.contains(packages[one.name], prereleases=True)


@pytest.mark.parametrize("name", NAMES)
def test_tensorflow_numpy_and_protobuf_stay(
    name: str, images: dict[str, Image], project: Project
) -> None:
    image = images[name]
    bounds = package_bounds(image, project.locks)
    packages = locked_packages(image, project.locks)
    for kept in (image.distribution, *image.provided, "tensorboard", "numpy", "protobuf", "h5py"):
        assert bounds[kept] == f"=={packages[kept]}"
    for cuda in (one for one in packages if one.startswith("nvidia-")):
        assert bounds[cuda].startswith("==")


def test_packages_of_horovod_and_tensorboard_may_move(
    images: dict[str, Image], project: Project
) -> None:
    bounds = package_bounds(images["tf-2.2-cpu-debian"], project.locks)
    assert bounds["pyyaml"] == bounds["cloudpickle"] == ""
    assert SpecifierSet(bounds["google-auth"]).contains("1.6.3")
    assert not SpecifierSet(bounds["google-auth"]).contains("2.0")


def test_setuptools_keeps_pkg_resources(images: dict[str, Image], project: Project) -> None:
    bounds = SpecifierSet(package_bounds(images["tf-2.12-cpu-debian"], project.locks)["setuptools"])
    assert bounds.contains("81.0.0")
    assert not bounds.contains("82.0.0")


def test_companions_are_those_of_the_tensorflow(images: dict[str, Image], project: Project) -> None:
    def bounds(name: str) -> dict[str, str]:
        image = images[name]
        return companion_bounds(image, locked_packages(image, project.locks))

    assert SpecifierSet(bounds("tf-1.15-cpu-debian")["keras"]).contains("2.3.1")
    assert not SpecifierSet(bounds("tf-1.15-cpu-debian")["keras"]).contains("2.4.3")
    assert bounds("tf-2.18-cpu-debian")["tensorflow-addons"] == NONE
    assert "keras" not in bounds("tf-2.18-cpu-debian"), "the image has its own"
    assert "tensorflow-gpu" not in bounds("tf-2.5-gpu-debian")
    assert bounds("tf-2.5-cpu-debian")["intel-tensorflow"] == NONE
    for image in images.values():
        for name, said in companion_bounds(image, ()).items():
            Requirement(name + said)


def test_another_image_changes_no_constraints(images: dict[str, Image], project: Project) -> None:
    """Otherwise a new TensorFlow would change the digests of all images."""
    image = images["tf-2.2-cpu-debian"]
    rows = tuple(row for row in image.matrix.images if row.tensorflow != "2.21.0")
    fewer = image.matrix.model_copy(update={"images": rows})
    other = replace(image, matrix=fewer)
    assert render_constraints(other, project.locks) == render_constraints(image, project.locks)
