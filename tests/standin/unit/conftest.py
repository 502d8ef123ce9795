"""The checkout and its matrix, for the tests of the stand-ins."""

from pathlib import Path

import pytest

from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project


@pytest.fixture(scope="session")
def project() -> Project:
    return Project(Path(__file__).resolve().parents[3])


@pytest.fixture(scope="session")
def matrix(project: Project) -> Matrix:
    return load_matrix(project.matrix)
