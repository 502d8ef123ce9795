"""Hostile repositories that are read quickly; tests/fuzz has all of them."""

from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.matrix.model import Matrix
from support import hostile_repositories
from support.hostile_adoption import SECONDS, check_harmless
from support.project_copy import NO_ENGINE, ROOT, run_main

CASES = (*hostile_repositories.names(),)
#: One of four, and none of those that take seconds.
QUICK = [case for case in CASES if not case.startswith(("bombs", "patterns", "shapes"))][::4]


def test_hostile_cases_are_many() -> None:
    assert len(CASES) == len(set(CASES))
    assert len(CASES) >= 60


@pytest.fixture(autouse=True, scope="module")
def _warm(project: Project) -> None:
    """Import and read in the parent what each process needs."""
    run_main(ROOT, "adopt", "/nonexistent", "--project", str(project.root), env=NO_ENGINE)


@pytest.mark.timeout(2 * SECONDS + 20)
@pytest.mark.parametrize("case", QUICK)
def test_hostile_repository_is_harmless(
    tmp_path: Path, project: Project, matrix: Matrix, case: str
) -> None:
    check_harmless(case, tmp_path, project, matrix)
