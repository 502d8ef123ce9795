"""docs/compatibility.md says what the data says."""

import pytest

from imgbuild.matrix.gpus import GENERATIONS
from imgbuild.matrix.images import corrections, documented_family
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rules import COMPARISONS
from imgbuild.project import Project


@pytest.fixture(scope="module")
def text(project: Project) -> str:
    return (project.root / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_every_rule_is_in_the_table(text: str, matrix: Matrix) -> None:
    for rule in matrix.rules:
        assert f"| `{rule.name}` | {rule.judges} | {rule.says} |\n" in text


def test_every_check_is_explained(text: str) -> None:
    for check in COMPARISONS:
        assert f"| `{check}` |" in text


def test_every_generation_is_in_the_table(text: str) -> None:
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.count("|") == 5]
    listed = {(name.strip(), one) for name, many in rows for one in many.strip().split(", ")}
    assert {(g.name, g.capability) for g in GENERATIONS} <= listed


def test_every_minimum_driver_is_in_the_table(text: str, matrix: Matrix) -> None:
    for release, cuda in matrix.cuda.items():
        assert f"| {release} | {cuda.driver} |\n" in text


def test_every_correction_is_in_the_table(text: str, matrix: Matrix) -> None:
    for image in documented_family(matrix):
        for one in corrections(image):
            pin, name = one.documented, image.name.removesuffix("-as-documented")
            cells = f"| {pin.component} | {pin.version} | {one.corrected.version} |"
            assert any(f"`{name}`" in line and cells in line for line in text.splitlines())
