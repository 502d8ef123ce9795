"""The headers of the broken images, without an engine."""

import re
from pathlib import Path

import pytest

from e2e.broken_images import FOLDER, KEYS, broken_images, read_broken
from imgbuild.matrix.images import Image


def test_each_derives_from_an_image_of_the_matrix(images: dict[str, Image]) -> None:
    files = [file for file in FOLDER.iterdir() if not file.name.startswith(".")]
    broken = broken_images()
    assert {one.file for one in broken} == {*files}
    assert {one.base for one in broken} <= images.keys()
    for file in files:
        code = "".join(re.findall(r"(?m)^[^#\n].*\n", file.read_text()))
        assert re.match(r"ARG BASE\nFROM (\$\{BASE\}|\$BASE)( AS \w+)?\n", code), file


@pytest.mark.parametrize("key", KEYS)
def test_a_header_that_is_not_whole_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "x").write_text("".join(f"# {one}: a\n" for one in KEYS if one != key))
    with pytest.raises(ValueError, match=f"# {key}: "):
        read_broken(tmp_path / "x")
