"""The documented versions: which pins have them, and that the documentation said so."""

import re

from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Matrix
from support.project_copy import ROOT


def test_a_pin_has_its_documented_version(images: dict[str, Image]) -> None:
    pins = {pin.component: pin for pin in images["tf-2.1-gpu-ubuntu"].pins}
    cuda, git = pins["cuda"], pins["git"]
    assert (cuda.version, cuda.documented, cuda.documented_exists) == ("10.1", "10.0", True)
    assert (git.version, git.documented, git.documented_exists) == ("2.17.1", "2.7.4", False)
    old = {pin.component: pin for pin in images["tf-1.13-gpu-ubuntu"].pins}["git"]
    assert (old.version, old.documented) == ("2.7.4", None)


def test_only_what_the_sources_have_is_called_documented(matrix: Matrix) -> None:
    section = (ROOT / "docs" / "documented-versions.md").read_text("utf-8")
    section = section.split("## Where versions are documented")[1]
    rows = re.findall(r"^\| (\d[^|]*) \| (\w+)", section, re.MULTILINE)
    where = {minor: source for minors, source in rows for minor in minors.split(", ")}
    ubuntu = {image.minor for image in all_images(matrix) if image.stack == "ubuntu"}
    assert {*where} == {*ubuntu, "2.4 and newer"}
    documented = {i.minor for i in all_images(matrix) if any(pin.documented for pin in i.pins)}
    chosen_here = {minor for minor, source in where.items() if source == "nowhere"} | {"1.15"}
    assert documented & chosen_here == set()
