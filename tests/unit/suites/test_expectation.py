"""The expectation of an image of the matrix."""

from expectation import parse_expectation

from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.suites.container import TestTarget
from imgbuild.suites.expectation import expectation


def test_it_holds_every_pin_and_package(images: dict[str, Image], project: Project) -> None:
    expected = expectation(images["tf-1.15-cpu-debian"], project)
    assert expected["pins"]["horovod"] == expected["packages"]["horovod"] == "0.18.2"
    assert expected["packages"]["tensorflow-cpu"] == "1.15.0"
    assert expected["labels"]["imgbuild.pin.mpi"] == "4.1.4"
    assert expected["horovodrun"] is True
    assert (expected["gpu"], expected["held"], expected["standin"]) == ({}, {}, False)


def test_that_of_a_gpu_image_has_its_needs(images: dict[str, Image], project: Project) -> None:
    expected = expectation(images["tf-1.13-gpu-ubuntu"], project)
    gpu = {"cuda": "10.0", "driver": "410.48", "newest": "7.5", "oldest": "3.5"}
    assert expected["gpu"] == gpu
    assert expected["held"]["libcudnn7"] == "7.6.3.30-1+cuda10.0"
    assert expected["held"]["libnccl2"] == "2.4.8-1+cuda10.0"
    assert expected["held"]["cuda-cudart-10-0"] == "10.0.130-1"
    assert expected["horovodrun"] is False  # Horovod's launcher refuses Intel MPI
    assert expectation(images["tf-2.2-gpu-ubuntu"], project)["horovodrun"] is True
    assert expectation(images["tf-2.2-gpu-ubuntu"], project)["held"]["libcublas10"]


def test_that_of_a_stand_in_build_has_the_stand_ins_versions(
    images: dict[str, Image], project: Project
) -> None:
    versions = {"python": "3.6.15", "intelmpi-2018.3.222": "2021.8", "openmpi-3.1.2": "4.1.4"}
    image = images["tf-1.13-gpu-ubuntu"]
    expected = expectation(image, project, versions)
    assert expected["standin"] is True
    assert (expected["pins"]["python"], expected["pins"]["mpi"]) == ("3.6.15", "2021.8")
    assert expected["pins"]["git"] == image.version_of("git")
    assert expected["labels"]["imgbuild.pin.python"] == "3.6.2"
    assert expected["pins"].keys() == expectation(image, project)["pins"].keys()
    assert expectation(image, project, {})["standin"] is True


def test_the_suites_read_that_of_every_image(images: dict[str, Image], project: Project) -> None:
    for image in images.values():
        expected = expectation(image, project)
        target = TestTarget(image.name, "id", "name", image.variant, expected)
        assert parse_expectation(expected).needs_driver is target.needs_driver
