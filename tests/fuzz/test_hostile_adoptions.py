"""All hostile repositories: no traceback, nothing of theirs runs, nothing is written elsewhere."""

from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.matrix.load import load_matrix
from support import hostile_repositories
from support.hostile_adoption import SECONDS, check_harmless
from support.project_copy import ROOT

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(2 * SECONDS + 20)
@pytest.mark.parametrize("case", [*hostile_repositories.names()])
def test_hostile_repository_is_harmless(tmp_path: Path, case: str) -> None:
    project = Project(ROOT)
    check_harmless(case, tmp_path, project, load_matrix(project.matrix))
