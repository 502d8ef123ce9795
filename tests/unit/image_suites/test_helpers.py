"""What the in-image suites judge with: it must refuse what is wrong, without a container too."""

from __future__ import annotations

from typing import Any

import pytest
from container import Container, Ran
from expectation import ExpectationError, parse_expectation
from mpi import mpi_version, mpirun

GOOD: dict[str, Any] = {
    "name": "tf-2.2-cpu-debian",
    "tensorflow": "2.2.0",
    "variant": "cpu",
    "stack": "debian",
    "pins": dict.fromkeys(
        ("tensorflow", "tensorboard", "python", "horovod", "mpi", "git", "os"), "1.0"
    ),
    "mpi_flavour": "openmpi",
    "os_id": "debian",
    "horovodrun": True,
    "standin": False,
    "packages": {"numpy": "1.18.5"},
    "held": {},
    "gpu": {},
}
GPU: dict[str, Any] = {
    **GOOD,
    "variant": "gpu",
    "pins": {**GOOD["pins"], "cuda": "10.1", "cudnn": "7.6.3.30", "nccl": "2.4.8"},
    "held": {"libnccl2": "2.4.8-1+cuda10.1"},
    "gpu": {"cuda": "10.1", "driver": "418.39", "newest": "7.5", "oldest": "3.5"},
}


#: The same with CUDA of the Python package index: no package is held, and kernels are promised.
INDEX = {**GPU, "held": {}, "gpu": {**GPU["gpu"], "kernels": "7.0 9.0"}}


def test_a_whole_expectation_is_read() -> None:
    assert parse_expectation(GOOD).tensorflow_minor == (2, 2)
    assert parse_expectation(GPU).gpu["driver"] == "418.39"
    assert parse_expectation(INDEX).gpu["kernels"] == "7.0 9.0"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"gpu": {}}, r"missing \(gpu\): cuda, driver, newest, oldest"),
        ({"gpu": {**GPU["gpu"], "drivers": "1"}}, r"unknown \(gpu\): drivers"),
        ({"pins": GOOD["pins"]}, r"missing \(pins\): cuda, cudnn, nccl"),
        ({"held": {}}, "empty: held"),
        ({"variant": "cpu"}, r"unknown \(gpu\)"),
    ],
)
def test_half_a_gpu_image_is_refused(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(ExpectationError, match=fault):
        parse_expectation({**GPU, **change})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"pin": {}}, "unknown: pin"),
        ({"packages": {}}, "empty: packages"),
        ({"horovodrun": "yes"}, "of a wrong type: horovodrun"),
        ({"pins": {"tensorflow": "2.2.0"}}, r"missing \(pins\): git, horovod"),
        ({"tensorflow": ""}, "empty: tensorflow"),
    ],
)
def test_an_expectation_that_would_check_nothing_is_refused(
    change: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ExpectationError, match=fault):
        parse_expectation({**GOOD, **change})


@pytest.mark.parametrize(
    ("flavour", "text", "version"),
    [
        ("openmpi", "mpirun (Open MPI) 4.1.4", "4.1.4"),
        ("intelmpi", "Intel(R) MPI Library for Linux* OS, Version 2018 Update 3 Build 1", "2018.3"),
        ("intelmpi", "Intel(R) MPI Library for Linux* OS, Version 2021.8 Build 2", "2021.8"),
        ("mpich", "HYDRA build details:\n    Version:            4.1.3", "4.1.3"),
        ("mpich", "mpirun (Open MPI) 4.1.4", None),
        ("openmpi", "command not found", None),
    ],
)
def test_mpi_versions(flavour: str, text: str, version: str | None) -> None:
    assert mpi_version(flavour, text) == version


def test_only_open_mpi_is_told_that_ranks_may_share_a_core() -> None:
    assert mpirun("openmpi", 4) == (
        *("mpirun", "-n", "4", "--oversubscribe"),
        *("-bind-to", "none"),
    )
    assert mpirun("intelmpi", 4) == ("mpirun", "-n", "4")


class Result:
    """What testinfra returns."""

    def __init__(self, rc: int, stdout: str = "", stderr: str = "") -> None:
        self.rc, self.stdout, self.stderr = rc, stdout, stderr


class Host:
    """A host that answers every command alike and remembers the last."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.command = ""

    def run(self, command: str, *_: str) -> Result:
        self.command = command
        return self.result


def _run(result: Result) -> Ran:
    return Container(Host(result), "/tmp/x").run("a", "b c", seconds=5)  # noqa: S108


def test_every_command_has_a_time_limit_and_quoted_words() -> None:
    host = Host(Result(0))
    Container(host, "/tmp/x").run("a", "b; c", seconds=5)  # noqa: S108
    assert host.command == "timeout --kill-after=5 5 a 'b; c'"


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (Result(3, "out", "err"), "exit code 3: a 'b c'"),
        (Result(124), r"stopped after 5 s \(exit code 124\)"),
    ],
)
def test_a_command_that_failed_fails_the_test(result: Result, fault: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=fault):
        _ = _run(result).output


@pytest.mark.parametrize("stdout", ["", "no json", '{"a": 1}\nmore'])
def test_output_that_is_not_json_fails_the_test(stdout: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="no last line of JSON"):
        _ = _run(Result(0, stdout)).json
