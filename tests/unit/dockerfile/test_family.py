"""Which locks there are, and which of them a command works on."""

import pytest

from imgbuild.dockerfile.conda import find_conda_problems, find_unlocked
from imgbuild.dockerfile.requirements import find_stale, lock_family
from imgbuild.errors import InputError
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project


def test_every_lock_of_the_matrix_has_its_name(matrix: Matrix) -> None:
    family = lock_family(matrix)
    assert {"conda-3.6.2.txt", "build-py3.6.txt", "tf-2.2.0-py3.6-cpu.txt"} <= family.names
    assert {request.file_name for request in family.requests} < family.names


def test_a_stack_has_its_own_locks_and_leaves_the_others_alone(matrix: Matrix) -> None:
    debian, ubuntu = lock_family(matrix, "debian"), lock_family(matrix, "ubuntu")
    assert not debian.pythons
    assert "3.6.2" in ubuntu.pythons
    assert debian.names == ubuntu.names == lock_family(matrix).names


def test_a_stack_that_there_is_not(matrix: Matrix) -> None:
    with pytest.raises(InputError, match="The matrix has no stack 'rhel'; there are: "):
        lock_family(matrix, "rhel")


def test_the_committed_conda_locks_fit_and_are_not_stale(matrix: Matrix, project: Project) -> None:
    family = lock_family(matrix)
    assert find_conda_problems(family.pythons, project.locks) == []
    assert find_unlocked(family.pythons, project.locks) == []
    assert not [p for p in find_stale(family.names, project.locks) if p.name.startswith("conda-")]
