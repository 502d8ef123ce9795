"""Every rule refuses the row that breaks it: by name, with its source and what would work."""

from collections.abc import Callable
from pathlib import Path

import pytest
from breaks import BREAKS, CUDA_OF_2_1, Break, horovod_on_debian

from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix

Edited = Callable[..., Path]
Refusal = Callable[[Path], str]


def test_every_rule_has_a_break(matrix: Matrix) -> None:
    assert {rule.name for rule in matrix.rules} == {one.rule for one in BREAKS}


@pytest.mark.parametrize("broken", BREAKS, ids=[f"{b.rule}-{b.nearest}" for b in BREAKS])
def test_a_row_that_breaks_a_rule_is_refused(
    matrix: Matrix, edited: Edited, refusal: Refusal, broken: Break
) -> None:
    path = edited(*broken.edits[0])
    for old, new in broken.edits[1:]:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
    line = next(line for line in refusal(path).splitlines() if f"rule {broken.rule}," in line)
    rule = next(rule for rule in matrix.rules if rule.name == broken.rule)
    assert broken.found in line
    assert f"{rule.says} Source: {rule.source}. Nearest that works: {broken.nearest}." in line


def _place(path: Path, message: str) -> str:
    """Return the line of the file that the first fault names."""
    assert message.startswith("matrix.yaml:")
    return path.read_text().splitlines()[int(message.split(":")[1]) - 1]


def test_the_place_is_the_rows_own_pin(edited: Edited, refusal: Refusal) -> None:
    path = edited(CUDA_OF_2_1, 'horovod: 0.19.1\n    cuda: "10.0"')
    assert _place(path, refusal(path)) == '    cuda: "10.0"'


def test_the_place_is_the_stacks_pin_and_images_are_counted(
    edited: Edited, refusal: Refusal
) -> None:
    path = edited("      nccl: 2.4.8", "      nccl: 2.4.2")
    message = refusal(path)
    assert _place(path, message) == "      nccl: 2.4.2"
    assert "tf-2.1-gpu-ubuntu, tf-2.2-gpu-ubuntu, tf-2.3-gpu-ubuntu: nccl 2.4.2" in message
    assert "1 fault; nothing was done." in message


def test_the_place_is_the_operating_systems_pin(edited: Edited, refusal: Refusal) -> None:
    path = edited("      mpi: openmpi-3.1.2", "      mpi: openmpi-4.1.4")
    assert _place(path, refusal(path)) == "      mpi: openmpi-4.1.4"


def test_the_place_is_the_stacks_operating_system(edited: Edited, refusal: Refusal) -> None:
    path = edited('glibc: "2.36"', 'glibc: "2.3"')
    assert _place(path, refusal(path)) == "    os: debian-12"


def test_the_place_is_the_table_where_the_table_is_wrong(edited: Edited, refusal: Refusal) -> None:
    path = edited('driver: "418.39"', 'driver: "410.48"')
    assert _place(path, refusal(path)) == '    driver: "410.48"'


def test_rules_and_broken_references_are_named_at_once(edited: Edited, refusal: Refusal) -> None:
    path = edited(*horovod_on_debian("0.16.4", "0.18.1"))
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


def test_the_old_compiler_of_the_operating_system_admits_horovod(edited: Edited) -> None:
    """Ubuntu 18.04 has a g++ 4.8, which is what Horovod 0.18 looks for."""
    old = "{tensorflow: 1.14.0, stack: ubuntu, variants: [cpu, gpu], horovod: 0.16.4"
    assert load_matrix(edited(old, old.replace("0.16.4", "0.18.1")))


def test_every_cuda_release_has_its_minimum_driver(matrix: Matrix) -> None:
    minimums = next(rule.minimum for rule in matrix.rules if rule.name == "cuda-driver")
    assert minimums is not None
    assert minimums.keys() == matrix.cuda.keys()


def test_rule_names_are_unique(matrix: Matrix) -> None:
    names = [rule.name for rule in matrix.rules]
    assert len(names) == len({*names})
