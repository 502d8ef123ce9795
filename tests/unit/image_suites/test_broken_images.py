"""The headers of the broken images, without an engine."""

import re
from pathlib import Path

import pytest

from imgbuild.matrix.images import Image
from support.broken_images import KEYS, broken_images, read_broken


def test_each_derives_from_an_image_of_the_matrix_and_a_header_is_whole(
    images: dict[str, Image], tmp_path: Path
) -> None:
    for broken in broken_images():
        assert broken.base in images
        code = "".join(re.findall(r"(?m)^[^#\n].*\n", broken.file.read_text()))
        assert re.match(r"ARG BASE\nFROM (\$\{BASE\}|\$BASE)( AS \w+)?\n", code), broken.file
    for key in KEYS:
        (tmp_path / "x").write_text("".join(f"# {one}: a\n" for one in KEYS if one != key))
        with pytest.raises(ValueError, match=f"# {key}: "):
            read_broken(tmp_path / "x")
