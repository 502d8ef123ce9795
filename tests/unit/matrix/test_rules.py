"""Rules: every one refuses the row that breaks it, by name, with its source and what would work."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rule_model import Check
from imgbuild.matrix.rules import COMPARISONS, BrokenRule, Value, find_working_value

Edited = Callable[..., Path]
Refusal = Callable[[Path], str]
#: A rule, an edit of the matrix that breaks it, what was found, and the nearest that works.
Break = tuple[str, str, str, str, str]

CUDA_OF_2_1 = (
    'horovod: 0.19.1\n    cuda: {version: "10.1", documented: "10.0", why: "the wheel loads '
    'libcudart.so.10.1; with CUDA 10.0, TensorFlow imports and silently runs on the CPU"}'
)
ROW_1_10 = "{tensorflow: 1.10.0, stack: ubuntu, os: ubuntu-16.04, variants: [cpu, gpu],"
OF_1_14 = "{tensorflow: 1.14.0, stack: ubuntu, variants: [cpu, gpu],"
ROW_2_0 = "{tensorflow: 2.0.0, stack: ubuntu, variants: [cpu, gpu],"
OF_2_12 = 'python: 3.11.2, horovod: 0.28.1, cuda: "11.8'
MPI = "mpi: openmpi-4.1.4"
CPYTHON = "source: cpython-3.6.15\n    wheel_tag: cp36"
DEBIANS = "    os: debian-12\n    packages: [py"
HOROVOD = "stack: debian, variants: [cpu], horovod: "

BREAKS: tuple[Break, ...] = (
    ("tensorflow-cuda", CUDA_OF_2_1, 'horovod: 0.19.1\n    cuda: "10.0"', "10.1:", "10.1"),
    ("tensorflow-cuda-11", OF_2_12, f"{OF_2_12[:-4]}10.1", "11.8 or newer", "11.8"),
    ("tensorflow-cudnn", ROW_2_0, f"{ROW_2_0} cudnn: 7.5.0.56,", "7.6 or newer", "7.6.3.30"),
    ("tensorflow-python", CPYTHON, CPYTHON.replace("cp36", "cp38"), "one of: cp36", "3.6.2"),
    ("python-os", DEBIANS, DEBIANS.replace("debian-12", "ubuntu-18.04"), "ubuntu-18", "3.8.18"),
    ("tensorflow-glibc", 'glibc: "2.36"', 'glibc: "2.3"', "at least 2.5", "ubuntu-16.04"),
    ("horovod-tensorflow", f"{HOROVOD}0.19.5}}", f"{HOROVOD}0.15.2}}", "in >=1.1,<2", "0.19.5"),
    ("horovod-compiler", f"{HOROVOD}0.16.4}}", f"{HOROVOD}0.18.1}}", "release of: none", "0.16.4"),
    ("cuda-cudnn", ROW_1_10, f"{ROW_1_10} cudnn: 7.5.0.56,", "one of: 7.4", "7.4.2.24"),
    ("cuda-nccl", ROW_1_10, f"{ROW_1_10} nccl: 2.6.4,", "one of: 2.4.2", "2.4.8"),
    ("cuda-os", ROW_1_10, ROW_1_10.replace("os: ubuntu-16.04, ", ""), "one of: ubuntu-16", "none"),
    ("cuda-driver", 'driver: "418.39"', 'driver: "410.48"', "at least 418", "418.39"),
    ("mpi-os", MPI, "mpi: openmpi-3.1.2", "one of: ubuntu-16.04", "openmpi-4.1.4"),
)


def _with_rule(judged: str, compared: str) -> tuple[str, str]:
    """Return the edit that adds the rule ``x``."""
    rule = f"{{name: x, judges: {judged}, says: s, source: s, otherwise: s, {compared}}}"
    return "rules:\n", f"rules:\n  - {rule}\n"


def test_every_rule_is_broken_here(matrix: Matrix) -> None:
    names = [rule.name for rule in matrix.rules]
    assert sorted(names) == sorted({name for name, *_ in BREAKS})
    assert {*COMPARISONS} == {*get_args(Check)}


@pytest.mark.parametrize("broken", BREAKS, ids=[name for name, *_ in BREAKS])
def test_a_row_that_breaks_a_rule_is_refused(
    matrix: Matrix, edited: Edited, refusal: Refusal, broken: Break
) -> None:
    name, old, new, required, nearest = broken
    lines = refusal(edited(old, new)).splitlines()
    line = next(line for line in lines if f"rule {name}, which requires" in line)
    rule = next(rule for rule in matrix.rules if rule.name == name)
    assert required in line
    assert f"{rule.says} Source: {rule.source}. Consequence: {rule.otherwise}. " in line
    assert line.endswith(f" Nearest that works: {nearest}.")


def test_a_broken_rule_names_the_images_and_what_was_found(
    edited: Edited, refusal: Refusal
) -> None:
    said = refusal(edited('glibc: "2.36"', 'glibc: "2.3"'))
    images = "tf-1.10-cpu-debian, tf-1.11-cpu-debian, tf-1.12-cpu-debian and 3 more"
    assert f"{images}: os debian-12, os.glibc 2.3, breaks the rule tensorflow-glibc" in said
    compared = "value: python.wheel_tag, fact: os.glibc, check: equal"
    said = refusal(edited(*_with_rule("os", f"{compared}, where: {{tensorflow: '>=1.14,<2'}}")))
    images = "tf-1.14-cpu-debian, tf-1.15-cpu-debian, tf-1.15-cpu-debian-intelmpi"
    assert f"{images}: os debian-12, python.wheel_tag cp36, breaks the rule x" in said


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (CUDA_OF_2_1, 'horovod: 0.19.1\n    cuda: "10.0"', '    cuda: "10.0"'),
        ("      nccl: 2.4.8", "      nccl: 2.4.2", "      nccl: 2.4.2"),
        ("      mpi: openmpi-3.1.2", "      mpi: openmpi-4.1.4", "      mpi: openmpi-4.1.4"),
        ('glibc: "2.36"', 'glibc: "2.3"', "    os: debian-12"),
        ('driver: "418.39"', 'driver: "410.48"', '    driver: "410.48"'),
    ],
)
def test_the_place_is_where_the_pin_is_written(
    edited: Edited, refusal: Refusal, old: str, new: str, place: str
) -> None:
    """In the row, the stack, the operating system, the stack's system, or a table."""
    path = edited(old, new)
    message = refusal(path)
    assert message.startswith("matrix.yaml:")
    assert path.read_text().splitlines()[int(message.split(":")[1]) - 1] == place


@pytest.mark.parametrize(
    ("judged", "compared"),
    [
        ("cuda", "value: os.glibc, fact: wheel.platform_glibc, check: equal"),
        ("cudnn", "value: tensorflow, fact: wheel.platform_glibc, check: equal"),
        ("nccl", 'minimum: {2.4.8: "99"}, check: at-least'),
    ],
)
def test_a_rule_on_a_gpu_pin_that_compares_what_every_image_has(
    edited: Edited, refusal: Refusal, judged: str, compared: str
) -> None:
    message = refusal(edited(*_with_rule(judged, compared)))
    assert "breaks the rule x" in message
    assert "-gpu-" in message
    assert "-cpu-" not in message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # NVIDIA has it for CUDA 10.0, and wheels of 1.14 run with it; those from 1.15 on do not.
        (OF_1_14, f"{OF_1_14} cudnn: 7.4.2.24,"),
        # Ubuntu 18.04 has a g++ 4.8, which is what Horovod 0.18 looks for.
        (f"{OF_1_14} horovod: 0.16.4", f"{OF_1_14} horovod: 0.18.1"),
        # The CPU images of a system need no CUDA for it.
        _with_rule("os", "fact: cuda.os, check: one-of"),
        # Without a GPU variant nothing loads CUDA.
        (
            f"variants: [cpu, gpu]\n    {CUDA_OF_2_1}",
            'variants: [cpu]\n    horovod: 0.19.1\n    cuda: "10.0"',
        ),
    ],
    ids=["older cuDNN", "compiler of the system", "no such fact", "no GPU variant"],
)
def test_what_breaks_no_rule_is_accepted(edited: Edited, old: str, new: str) -> None:
    assert load_matrix(edited(old, new))


def test_of_two_values_that_are_equally_near_the_newer_one_is_named(matrix: Matrix) -> None:
    rule = next(rule for rule in matrix.rules if rule.judges == "cuda" and rule.fact)
    cuda = dict.fromkeys(("10.0", "10.2", "11.0"), matrix.cuda["10.0"])
    changed = matrix.model_copy(update={"cuda": cuda, "rules": ()})
    assert find_working_value(changed, {}, BrokenRule(rule, "10.1", "10.1", "")) == "10.2"


def test_every_cuda_release_has_its_minimum_driver(matrix: Matrix) -> None:
    minimums = next(rule.minimum for rule in matrix.rules if rule.name == "cuda-driver")
    assert minimums is not None
    assert minimums.keys() == matrix.cuda.keys()


@pytest.mark.parametrize(
    ("check", "value", "fact", "expected"),
    [
        ("equal", "10.1", ("10.10",), False),
        ("one-of", "cp3", ("cp36", "cp37"), False),
        ("range", "2.2.0", (">=1.1,<2.2",), False),
        ("range", "2.0rc1", (">=1",), True),
        ("range", "1~2", (">=1",), False),  # a version of another kind
        ("at-least", "2.12.0", ("2.12",), True),
        ("at-least", "2.5", ("2.12",), False),
        ("at-least", "410.104", ("410.48",), True),
        ("same-major-minor-at-least", "7.10.0", ("7.6.4",), True),
        ("same-major-minor-at-least", "7.5.9", ("7.6.0",), False),
        ("same-major-minor-at-least", "8.6.0", ("7.6.4",), False),
        ("same-major-minor-at-least", "6.7.0", ("7.6.4",), False),
        ("same-major-minor-at-least", "8", ("8.0",), True),
        ("same-major-minor-at-least", "8", ("8.1",), False),
        ("release-one-of", "4.8.5", ("4.8",), True),
    ],
)
def test_a_comparison(check: Check, value: str, fact: Value, expected: bool) -> None:
    holds, _ = COMPARISONS[check]
    assert holds(value, fact) is expected
