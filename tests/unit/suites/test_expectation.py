"""Expectations: all pins of an image of the matrix, of an external one what ``--expect`` says."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from expectation import parse_expectation

from imgbuild.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project
from imgbuild.suites.container import ImageContents, TestTarget
from imgbuild.suites.expectation import expectation, external_target, parse_expect

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


PROBED = ImageContents(
    distributions=(("tensorflow", "2.2.0"),),
    built_with_cuda=False,
    kernels=False,
    python="3.6.15",
    mpirun="mpirun (Open MPI) 4.1.4",
    cuda=(),
    os=("debian", "12"),
    horovodrun=True,
)
WITH_CUDA = replace(
    PROBED, distributions=(("tensorflow", "1.13.1"),), mpirun="", cuda=("10.0.130",)
)


@pytest.fixture
def external(matrix: Matrix, project: Project) -> Callable[..., TestTarget]:
    """Return what makes a target of an external image, its option and what is in it."""

    def make(text: str, contents: ImageContents = PROBED) -> TestTarget:
        option = parse_expect([text], matrix)
        return external_target(option, "me/mine:1", "sha256:id", contents, project)

    return make


def test_only_what_is_given_is_expected(external: Callable[..., TestTarget]) -> None:
    target = external("tf=2.2,horovod=0.28.1+imgbuild.1")
    assert target.variant == "cpu"
    assert target.expected == {
        "partial": True,
        "name": "me/mine:1",
        "tensorflow": "2.2",
        "variant": "cpu",
        "pins": {"tensorflow": "2.2", "horovod": "0.28.1+imgbuild.1"},
        "horovodrun": True,
        "gpu": {},
        "mpi_flavour": "openmpi",
    }
    assert parse_expectation(dict(target.expected)).tensorflow_minor == (2, 2)
    assert {"packages", "labels", "os_id", "pin python"} <= {*target.unspecified}
    assert not {"pins", "variant", "pin tensorflow"} & {*target.unspecified}


@pytest.mark.parametrize(
    ("text", "facts", "pins"),
    [
        ("mpi=openmpi", {"mpi_flavour": "openmpi"}, {}),
        ("mpi=4.1.4", {"mpi_flavour": "openmpi"}, {"mpi": "4.1.4"}),
        ("mpi=intelmpi-2021.8", {"mpi_flavour": "intelmpi"}, {"mpi": "2021.8"}),
        ("os=ubuntu-18.04", {"os_id": "ubuntu"}, {"os": "18.04"}),
        ("os=debian", {"os_id": "debian"}, {}),
        ("stack=debian", {"stack": "debian"}, {}),
    ],
)
def test_kinds_and_versions(
    external: Callable[..., TestTarget], text: str, facts: dict[str, str], pins: dict[str, str]
) -> None:
    expected = external(text).expected
    assert expected["pins"] == pins
    assert {key: expected[key] for key in facts} == facts
    # Horovod's launcher starts ranks through Open MPI only.
    assert expected["horovodrun"] is (expected["mpi_flavour"] == "openmpi")


def test_a_gpu_image_is_given_or_seen(external: Callable[..., TestTarget]) -> None:
    given = external("variant=gpu")
    assert (given.variant, given.expected["gpu"]["cuda"]) == ("gpu", "10.1")
    assert parse_expectation(dict(given.expected)).gpu["driver"]
    seen = external("python=3.6", WITH_CUDA)
    assert (seen.variant, seen.expected["gpu"]["cuda"]) == ("gpu", "10.0")
    assert "mpi_flavour" not in seen.expected
    assert external("variant=cpu", WITH_CUDA).variant == "cpu"


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        *((["foo=1"], "'foo=1': .*tf, python"), (["tf"], "'tf'"), (["tf=2.2,"], "''")),
        *((["tf=x"], "tf is a version"), (["tf="], "tf is"), (["tf=2.2;rm"], "tf is")),
        (["horovod=0.28.1+"], "horovod is"),
        (["mpi=lam"], "mpi=lam: mpi is one of intelmpi, openmpi"),
        *((["mpi=openmpi-x"], "mpi is"), (["os=-1"], "os is")),
        *((["variant=tpu"], "cpu, gpu"), (["stack=x"], "ubuntu, debian")),
        (["tf=2.2", "tf=2.3"], r"tf is given twice, as 2\.2 and as 2\.3"),
    ],
)
def test_what_cannot_be_meant_is_refused(matrix: Matrix, texts: list[str], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        parse_expect(texts, matrix)


def test_a_tensorflow_that_the_suites_do_not_know_is_refused(
    external: Callable[..., TestTarget],
) -> None:
    with pytest.raises(InputError, match=r"3\.0.* 1\.10, "):
        external("tf=3.0")
    with pytest.raises(InputError, match="me/mine:1"):
        external("git=1", replace(PROBED, distributions=()))
