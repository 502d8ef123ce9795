"""What the in-image suites judge with: it must refuse what is wrong, without a container too."""

from typing import Any

import pytest
from container import Container
from expectation import ExpectationError, parse_expectation
from expectations import ALONE, GOOD, GPU, INDEX, PARTIAL
from versions import begins


@pytest.mark.parametrize(
    ("whole", "change", "fault"),
    [
        (GOOD, {"pin": {}}, "unknown: pin"),
        (GOOD, {"packages": {}}, "empty: packages"),
        (GOOD, {"horovodrun": "yes"}, "of a wrong type: horovodrun"),
        (GOOD, {"pins": {"tensorflow": "2.2.0"}}, r"missing \(pins\): git, horovod"),
        (GOOD, {"tensorflow": ""}, "empty: tensorflow"),
        (ALONE, {"mpi_flavour": "openmpi"}, r"missing \(pins\): horovod, mpi"),
        (ALONE, {"stack": None}, "of a wrong type: stack"),
        (GPU, {"gpu": {}}, r"missing \(gpu\): cuda, driver, newest, oldest"),
        (GPU, {"gpu": {**GPU["gpu"], "drivers": "1"}}, r"unknown \(gpu\): drivers"),
        (GPU, {"pins": GOOD["pins"]}, r"missing \(pins\): cuda, cudnn, nccl"),
        (GPU, {"held": {}}, "empty: held"),
        (INDEX, {"variant": "cpu"}, r"unknown \(gpu\)"),
        (PARTIAL, {"pin": {}}, "unknown: pin"),
        (PARTIAL, {"horovodrun": "yes"}, "of a wrong type: horovodrun"),
        (PARTIAL, {"partial": "yes"}, "unknown: partial"),
    ],
)
def test_an_expectation_that_would_check_nothing_is_refused(
    whole: dict[str, Any], change: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ExpectationError, match=fault):
        parse_expectation({**whole, **change})
    assert parse_expectation(whole).tensorflow_minor == (2, 2)
    without = {key: value for key, value in whole.items() if key != "tensorflow"}
    with pytest.raises(ExpectationError, match="missing: tensorflow"):
        parse_expectation(without)


def test_a_version_may_be_given_in_short() -> None:
    assert begins("tensorflow", "2.2", "2.2.0")
    assert not begins("tensorflow", "2.2", "2.20.0")
    assert not begins("tensorflow", "2.2.0", "2.2")
    assert begins("horovod", "0.28.1", "0.28.1+imgbuild.1")


class Host:
    """A host that answers every command alike and remembers the last."""

    def __init__(self, rc: int = 0, stdout: str = "") -> None:
        self.rc, self.stdout, self.stderr = rc, stdout, "err"
        self.command = ""

    def run(self, command: str, *_: str) -> "Host":
        self.command = command
        return self


@pytest.mark.parametrize(
    ("code", "stdout", "fault"),
    [
        (3, "out", "exit code 3: a 'b; c'"),
        (124, "{}", r"stopped after 5 s \(exit code 124\)"),
        (0, "", "no last line of JSON"),
        (0, '{"a": 1}\nmore', "no last line of JSON"),
    ],
)
def test_a_command_that_fails_or_takes_too_long_fails_the_test(
    code: int, stdout: str, fault: str
) -> None:
    host = Host(code, stdout)
    ran = Container(host, "/tmp/x").run("a", "b; c", seconds=5)  # noqa: S108
    assert host.command == "timeout --kill-after=5 5 a 'b; c'"
    with pytest.raises(pytest.fail.Exception, match=fault):
        _ = ran.json
