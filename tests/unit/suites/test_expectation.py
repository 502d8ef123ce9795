"""Expectations: all that the matrix says of an image."""

from collections.abc import Callable
from typing import Any

import pytest
from expectation import parse_expectation

from imgbuild.core.project import Project
from imgbuild.matrix.images import Image
from imgbuild.suites.container import TestTarget
from imgbuild.suites.expectation import expectation

Expected = Callable[..., dict[str, Any]]


@pytest.fixture
def expected(images: dict[str, Image], project: Project) -> Expected:
    """Return what gives the expectation of an image by its name."""
    return lambda name, *versions: expectation(images[name], project, *versions)


def test_it_holds_every_pin_and_package(expected: Expected) -> None:
    cpu, gpu = expected("tf-1.15-cpu-debian"), expected("tf-1.13-gpu-ubuntu")
    assert cpu["pins"]["horovod"] == cpu["packages"]["horovod"] == "0.18.2"
    assert cpu["labels"]["imgbuild.pin.mpi"] == "4.1.4"
    assert (cpu["gpu"], cpu["held"], cpu["standin"]) == ({}, {}, False)
    needs = {"cuda": "10.0", "driver": "410.48", "newest": "7.5", "oldest": "3.5"}
    assert gpu["gpu"] == needs
    assert gpu["held"]["libnccl2"] == "2.4.8-1+cuda10.0"
    assert gpu["held"]["cuda-cudart-10-0"] == "10.0.130-1"
    # Horovod's launcher refuses Intel MPI.
    assert (cpu["horovodrun"], gpu["horovodrun"]) == (True, False)


def test_cuda_of_the_index_promises_kernels_and_holds_no_package(expected: Expected) -> None:
    index = expected("tf-2.12-gpu-debian")
    assert index["held"] == {}
    assert index["gpu"]["kernels"].endswith("8.9 9.0")
    assert index["packages"]["nvidia-cudnn-cu11"] == index["pins"]["cudnn"]


def test_that_of_a_stand_in_build_has_the_stand_ins_versions(expected: Expected) -> None:
    usual = expected("tf-1.14-gpu-ubuntu")
    standin = expected("tf-1.14-gpu-ubuntu", {"python": "3.6.15", "openmpi-3.1.2": "4.1.4"})
    assert standin["pins"] == {**usual["pins"], "python": "3.6.15", "mpi": "4.1.4"}
    assert {**standin, "pins": usual["pins"], "standin": False} == usual
    assert expected("tf-1.14-gpu-ubuntu", {})["standin"] is True


def test_the_suites_read_that_of_every_image(images: dict[str, Image], project: Project) -> None:
    """And agree with imgbuild about images that cannot be used without a driver."""
    needing = set()
    for image in images.values():
        expected = expectation(image, project)
        target = TestTarget(image.name, "id", "name", image.variant, expected)
        assert parse_expectation(expected).needs_driver is target.needs_driver
        needing |= {(image.minor, image.variant)} if target.needs_driver else set()
    assert needing == {(minor, "gpu") for minor in ("1.10", "1.11", "1.12", "1.13")}
