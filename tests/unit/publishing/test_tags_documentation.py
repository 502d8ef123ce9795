"""docs/tags.md says what the data says."""

import re
from typing import get_args

import pytest

from imgbuild.matrix.images import Image, documented_family
from imgbuild.matrix.model import Matrix, Part
from imgbuild.matrix.tags import planned_tags
from imgbuild.project import Project
from imgbuild.publishing.gate import SKIPPABLE

RELEASE = "20261120.1"
_ROW = re.compile(r"\| `(?P<name>tf-[^`]+)` \| (?P<tags>.+) \|")


@pytest.fixture(scope="module")
def text(project: Project) -> str:
    return (project.root / "docs" / "tags.md").read_text(encoding="utf-8")


def test_the_scheme_is_that_of_the_matrix(text: str, project: Project) -> None:
    block = text.split("```yaml\n")[1].split("```", maxsplit=1)[0]
    assert block in project.matrix.read_text(encoding="utf-8")


def test_every_part_is_in_the_table_and_no_other(text: str) -> None:
    table = text.split("| part |")[1].split("\n\n", maxsplit=1)[0]
    assert re.findall(r"\n\| `([a-z]+)` \|", table) == list(get_args(Part))


def test_every_example_is_an_image_s_own(
    text: str, images: dict[str, Image], matrix: Matrix
) -> None:
    every = {**images, **{image.name: image for image in documented_family(matrix)}}
    rows = list(_ROW.finditer(text))
    assert len(rows) == 6
    for row in rows:
        planned = planned_tags(every[row["name"]], RELEASE)
        assert re.findall("`([^`]+)`", row["tags"]) == [planned.immutable, *planned.moving]


def test_the_first_example_is_an_image_s_own(text: str, images: dict[str, Image]) -> None:
    planned = planned_tags(images["tf-2.2-gpu-ubuntu"], RELEASE)
    block = text.split("```\n")[1]
    assert [line.split()[0] for line in block.splitlines()] == [planned.immutable, *planned.moving]


def test_what_can_be_allowed_is_told(text: str) -> None:
    for suite in SKIPPABLE:
        assert f"| `--allow-skipped {suite}` |" in text
    assert "| `--allow-substituted` |" in text
