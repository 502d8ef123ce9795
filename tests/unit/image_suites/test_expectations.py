"""What the in-image suites judge with: it must refuse what is wrong, without a container too."""

from typing import Any

import pytest
from container import Container, Ran
from expectation import ExpectationError, parse_expectation

from imgbuild.suites.results import Check
from support.expectations import ALONE, GOOD, GPU, INDEX


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
        (3, "out", r"^a: exit code 3: err\n"),
        (124, "{}", "^ran out of time: a: "),
        (142, "{}", "^ran out of time: a: "),
        (137, "out", r"^a: exit code 137: err\n"),  # nothing says that time had run out
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


@pytest.mark.parametrize(
    ("code", "took", "says"),
    [
        (124, 5.1, "ran out of time: late.py: stopped after 5 s"),
        (124, 2.0, "ran out of time: late.py: gave up after 2 s"),
        (137, 10.1, "ran out of time: late.py: stopped after 5 s"),  # by --kill-after
        (137, 2.0, "late.py: exit code 137"),  # the kernel had no memory, for example
    ],
)
def test_ran_tells_a_late_command_from_a_wrong_one(code: int, took: float, says: str) -> None:
    ran = Ran("python /tmp/x/late.py '{\"a\": 1}'", 5, code, "", "waited for b", took)
    with pytest.raises(pytest.fail.Exception) as told:
        _ = ran.output
    first = str(told.value).splitlines()[0]
    assert first == f"{says}: waited for b"
    assert Check(test="test_x", message=str(told.value)).reason == first


def test_reason_is_the_error_not_the_arguments() -> None:
    arguments = " ".join(f"--argument{number}=error" for number in range(50))
    stderr = "Traceback (most recent call last):\nValueError: no such tensor\nmpirun has exited"
    ran = Ran(f"mpirun python rank.py {arguments}", 5, 1, "", stderr)
    with pytest.raises(pytest.fail.Exception) as told:
        _ = ran.output
    reason = Check(test="test_x", message=str(told.value)).reason
    assert "ValueError: no such tensor" in reason
    assert "--argument" not in reason
