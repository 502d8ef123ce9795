"""The headers of the broken images, without an engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from e2e.broken_images import FOLDER, KEYS, broken_images, read_broken

if TYPE_CHECKING:
    from pathlib import Path

    from imgbuild.matrix.images import Image

GOOD = "# suite: pins\n# base: tf-2.2-cpu-debian\n# fails: a\\[b\\]\n# says: c\nARG BASE\n"


def test_every_header_is_whole_and_its_base_is_in_the_matrix(images: dict[str, Image]) -> None:
    files = [file for file in FOLDER.iterdir() if not file.name.startswith(".")]
    assert files
    assert {file.suffix for file in files} == {".Dockerfile"}
    assert {broken.base for broken in broken_images()} <= images.keys()


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.Dockerfile")), ids=lambda file: file.stem)
def test_a_broken_image_derives_from_its_base_and_needs_no_network(file: Path) -> None:
    instructions = [
        line for line in file.read_text().splitlines() if line and not line.startswith("#")
    ]
    assert instructions[0] == "ARG BASE"
    assert re.fullmatch(r"FROM (\$\{BASE\}|\$BASE)( AS \w+)?", instructions[1])


def test_a_header_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.Dockerfile").write_text(GOOD)
    broken = read_broken(tmp_path / "x.Dockerfile")
    assert (broken.suite, broken.fails, broken.tag) == ("pins", r"a\[b\]", "imgbuild-broken/x")


@pytest.mark.parametrize("key", KEYS)
def test_a_header_that_is_not_whole_is_refused(tmp_path: Path, key: str) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"# {key}:")]
    (tmp_path / "x.Dockerfile").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"the first 4 lines must be # suite: …, # base"):
        read_broken(tmp_path / "x.Dockerfile")
