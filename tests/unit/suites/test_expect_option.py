"""``--expect``: what is given is asserted, and no more; what cannot be meant is refused."""

from typing import Any

import pytest
from expectation import parse_expectation

from imgbuild.errors import InputError
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project
from imgbuild.suites.container import ImageContents, TestTarget
from imgbuild.suites.expectation import external_target, parse_expect


def _image(tensorflow: str = "", mpirun: str = "", *, cuda: bool = False) -> ImageContents:
    return ImageContents(
        distributions=(("tensorflow", tensorflow),) if tensorflow else (),
        built_with_cuda=cuda,
        kernels=cuda,
        python="3.6.15",
        mpirun=mpirun,
        cuda=("10.0.130",) if cuda else (),
        os=("debian", "12"),
        horovodrun=bool(mpirun),
    )


PROBED = _image("2.2.0", "mpirun (Open MPI) 4.1.4")


def _expected(
    text: str, matrix: Matrix, project: Project, probed: ImageContents = PROBED
) -> tuple[str, dict[str, Any]]:
    target = _target(text, matrix, project, probed)
    return target.variant, dict(target.expected)


def _target(text: str, matrix: Matrix, project: Project, probed: ImageContents) -> TestTarget:
    option = parse_expect([text], matrix)
    return external_target(option, "me/mine:1", "sha256:id", probed, project)


def test_only_what_is_given_is_expected(matrix: Matrix, project: Project) -> None:
    variant, expected = _expected("tf=2.2,horovod=0.19.5", matrix, project)
    assert variant == "cpu"
    assert expected == {
        "partial": True,
        "name": "me/mine:1",
        "tensorflow": "2.2",
        "variant": "cpu",
        "pins": {"tensorflow": "2.2", "horovod": "0.19.5"},
        "horovodrun": True,
        "gpu": {},
        "mpi_flavour": "openmpi",
    }
    parsed = parse_expectation(expected)
    assert (parsed.partial, parsed.tensorflow_minor) == (True, (2, 2))
    left_out = _target("tf=2.2,horovod=0.19.5", matrix, project, PROBED).unspecified
    assert {"packages", "labels", "os_id", "pin python"} <= {*left_out}
    assert not {"pins", "variant", "pin tensorflow"} & {*left_out}


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
    matrix: Matrix, project: Project, text: str, facts: dict[str, str], pins: dict[str, str]
) -> None:
    _, expected = _expected(text, matrix, project)
    assert expected["pins"] == pins
    assert {key: expected[key] for key in facts} == facts
    # Horovod's launcher starts ranks through Open MPI only.
    assert expected["horovodrun"] is (expected["mpi_flavour"] == "openmpi")


def test_a_gpu_image_is_given_or_seen(matrix: Matrix, project: Project) -> None:
    variant, expected = _expected("variant=gpu", matrix, project)
    assert (variant, expected["gpu"]["cuda"]) == ("gpu", "10.1")
    assert parse_expectation(expected).gpu["driver"]
    seen = _image("1.13.1", cuda=True)
    variant, expected = _expected("python=3.6", matrix, project, seen)
    assert (variant, expected["gpu"]["cuda"]) == ("gpu", "10.0")
    assert "mpi_flavour" not in expected
    assert _expected("variant=cpu", matrix, project, seen)[0] == "cpu"


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        (["foo=1"], r"'foo=1': give KEY=VALUE, with a key of: tf, python, tensorboard, horovod"),
        (["tf"], r"'tf': give KEY=VALUE"),
        (["tf=2.2,"], r"'': give KEY=VALUE"),
        (["tf=x"], r"tf=x: tf is a version such as 2\.2"),
        (["tf="], r"tf is a version"),
        (["tf=2.2;rm"], r"tf is a version"),
        (["mpi=lam"], r"mpi=lam: mpi is one of intelmpi, openmpi, a version, or both: "),
        (["mpi=openmpi-x"], r"mpi is one of"),
        (["os=-1"], r"os is a name, a version, or both"),
        (["variant=tpu"], r"variant is one of cpu, gpu"),
        (["stack=x"], r"stack is one of ubuntu, debian"),
        (["tf=2.2", "tf=2.3"], r"tf is given twice, as 2\.2 and as 2\.3"),
    ],
)
def test_what_cannot_be_meant_is_refused(matrix: Matrix, texts: list[str], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        parse_expect(texts, matrix)


def test_a_tensorflow_that_the_suites_do_not_know_is_refused(
    matrix: Matrix, project: Project
) -> None:
    with pytest.raises(InputError, match=r"is to have TensorFlow 2\.9; the suites know 1\.10, "):
        _expected("tf=2.9", matrix, project)
    with pytest.raises(InputError, match=r"No TensorFlow was found in me/mine:1; say which"):
        _expected("git=1", matrix, project, _image())
