"""Rules: every one refuses the row that breaks it, by name, with its source and what would work."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from imgbuild.matrix.images import documented_family
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rule_model import Check
from imgbuild.matrix.rules import COMPARISONS, Value, admits, documented_warnings

Edited = Callable[..., Path]
Refusal = Callable[[Path], str]
#: A rule, an edit of the matrix that breaks it, what was found, and the nearest that works.
Break = tuple[str, str, str, str, str]

CUDA_OF_2_1 = (
    'horovod: 0.19.1\n    cuda: {version: "10.1", documented: "10.0", why: "the wheel loads '
    'libcudart.so.10.1; with CUDA 10.0 it imports, and silently runs on the CPU"}'
)
ROW_1_10 = "{tensorflow: 1.10.0, stack: ubuntu, os: ubuntu-16.04, variants: [cpu, gpu],"
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


def test_every_rule_is_broken_here(matrix: Matrix) -> None:
    names = [rule.name for rule in matrix.rules]
    assert sorted(names) == sorted({name for name, *_ in BREAKS})


@pytest.mark.parametrize("broken", BREAKS, ids=[name for name, *_ in BREAKS])
def test_a_row_that_breaks_a_rule_is_refused(
    matrix: Matrix, edited: Edited, refusal: Refusal, broken: Break
) -> None:
    name, old, new, required, nearest = broken
    lines = refusal(edited(old, new)).splitlines()
    line = next(line for line in lines if f"rule {name}, which requires" in line)
    rule = next(rule for rule in matrix.rules if rule.name == name)
    assert required in line
    assert f"{rule.says} Source: {rule.source}. Nearest that works: {nearest}." in line


def test_a_cudnn_that_exists_may_still_be_too_old_for_the_wheel(
    edited: Edited, refusal: Refusal
) -> None:
    """NVIDIA has 7.4.2.24 for CUDA 10.0; wheels of 1.14 run with it, those from 1.15 on do not."""
    row = "{tensorflow: 1.14.0, stack: ubuntu, variants: [cpu, gpu],"
    assert load_matrix(edited(row, f"{row} cudnn: 7.4.2.24,"))
    for other in (row.replace("1.14", "1.15"), ROW_2_0):
        said = refusal(edited(other, f"{other} cudnn: 7.4.2.24,"))
        assert "tensorflow-cudnn, which requires 7.6 or newer" in said


def test_a_broken_rule_names_the_images_and_what_was_found(
    edited: Edited, refusal: Refusal
) -> None:
    said = refusal(edited('glibc: "2.36"', 'glibc: "2.3"'))
    images = "tf-1.10-cpu-debian, tf-1.11-cpu-debian, tf-1.12-cpu-debian and 3 more"
    assert f"{images}: os debian-12, os.glibc 2.3, breaks the rule tensorflow-glibc" in said
    rule = "{name: x, judges: os, says: s, source: s, otherwise: s, value: python.wheel_tag, "
    rule += "fact: os.glibc, check: equal, where: {tensorflow: '>=1.14,<2'}}"
    said = refusal(edited("rules:\n", f"rules:\n  - {rule}\n"))
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


def test_rules_and_broken_references_are_named_at_once(edited: Edited, refusal: Refusal) -> None:
    path = edited(f"{HOROVOD}0.16.4}}", f"{HOROVOD}0.18.1}}")
    path.write_text(path.read_text().replace("horovod: 0.16.1}", "horovod: 0.16.9}"))
    message = refusal(path)
    assert "no Horovod '0.16.9'" in message
    assert "breaks the rule horovod-compiler" in message
    assert "2 faults; nothing was done." in message


def test_a_cpu_image_is_not_judged_by_its_rows_cuda(edited: Edited) -> None:
    new = 'horovod: 0.19.1\n    cuda: "10.0"'
    path = edited(CUDA_OF_2_1, new)
    text = path.read_text()
    path.write_text(text.replace(f"variants: [cpu, gpu]\n    {new}", f"variants: [cpu]\n    {new}"))
    assert load_matrix(path)


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
    rule = f"{{name: x, judges: {judged}, says: s, source: s, otherwise: s, {compared}}}"
    message = refusal(edited("rules:\n", f"rules:\n  - {rule}\n"))
    assert "breaks the rule x" in message
    assert "-gpu-" in message
    assert "-cpu-" not in message


def test_an_image_without_the_fact_is_not_judged(edited: Edited) -> None:
    """The CPU images of a system need no CUDA for it."""
    rule = "{name: x, judges: os, says: s, source: s, otherwise: s, fact: cuda.os, check: one-of}"
    assert load_matrix(edited("rules:\n", f"rules:\n  - {rule}\n"))


def test_the_old_compiler_of_the_operating_system_admits_horovod(edited: Edited) -> None:
    """Ubuntu 18.04 has a g++ 4.8, which is what Horovod 0.18 looks for."""
    old = "{tensorflow: 1.14.0, stack: ubuntu, variants: [cpu, gpu], horovod: 0.16.4"
    assert load_matrix(edited(old, old.replace("0.16.4", "0.18.1")))


def test_every_cuda_release_has_its_minimum_driver(matrix: Matrix) -> None:
    minimums = next(rule.minimum for rule in matrix.rules if rule.name == "cuda-driver")
    assert minimums is not None
    assert minimums.keys() == matrix.cuda.keys()


def test_a_warning_before_an_image_is_built_as_documented(matrix: Matrix) -> None:
    family = {image.name: image for image in documented_family(matrix)}
    differences, warning = documented_warnings(family["tf-2.1-gpu-ubuntu-as-documented"])
    for fact in ("cuda 10.0 in place of 10.1", "git stays 2.17.1, since 2.7.4"):
        assert fact in differences
    for fact in ("breaks the rule tensorflow-cuda", "silently runs on the CPU", "--no-test"):
        assert fact in warning
    assert "\n" not in warning
    (differences,) = documented_warnings(family["tf-2.3-cpu-debian-as-documented"])
    assert "horovod 0.20.0 in place of 0.20.3" in differences


def test_every_kind_of_the_schema_is_there() -> None:
    assert {*COMPARISONS} == {*get_args(Check)}


@pytest.mark.parametrize(
    ("check", "value", "fact", "expected"),
    [
        ("equal", "10.1", ("10.10",), False),
        ("one-of", "cp36", ("cp36", "cp37"), True),
        ("one-of", "debian-1", ("debian-12",), False),
        ("one-of", "cp38", (), False),
        ("range", "2.1.0", (">=1.1,<2.2",), True),
        ("range", "2.2.0", (">=1.1,<2.2",), False),
        ("at-least", "2.12.0", ("2.12",), True),
        ("at-least", "2.5", ("2.12",), False),
        ("at-least", "410.104", ("410.48",), True),
        ("same-major-minor-at-least", "7.10.0", ("7.6.4",), True),
        ("same-major-minor-at-least", "7.5.9", ("7.6.0",), False),
        ("same-major-minor-at-least", "8.0.1", ("7.6.0",), False),
        ("same-major-minor-at-least", "8.6.0", ("7.6.4",), False),
        ("same-major-minor-at-least", "6.7.0", ("7.6.4",), False),
        ("same-major-minor-at-least", "8", ("8.0",), True),
        ("same-major-minor-at-least", "8", ("8.1",), False),
        ("release-one-of", "4.8.5", ("4.8",), True),
        ("release-one-of", "4.8.5", (), False),
    ],
)
def test_a_comparison(check: Check, value: str, fact: Value, expected: bool) -> None:
    assert COMPARISONS[check].holds(value, fact) is expected


def test_a_version_of_another_kind_lies_in_no_range() -> None:
    assert not admits(">=1", "1~2")
    assert admits(">=1", "2.0rc1")
