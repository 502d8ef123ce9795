"""The images as documented: what they have, and that the documentation said so."""

import re

from conftest import ROOT

from imgbuild.matrix.images import Image, all_images, as_documented, corrections, unavailable
from imgbuild.matrix.model import Matrix


def test_a_documented_version_that_the_system_never_had_stays_corrected(
    images: dict[str, Image],
) -> None:
    (image,) = as_documented([images["tf-2.1-gpu-ubuntu"]], each=True)
    assert [(name, pin.version) for name, pin in corrections(image).items()] == [("cuda", "10.1")]
    assert (image.version_of("cuda"), image.version_of("git")) == ("10.0", "2.17.1")
    assert [pin.documented for pin in unavailable(image)] == ["2.7.4"]
    old = images["tf-1.13-gpu-ubuntu"]
    assert (old.version_of("git"), unavailable(old)) == ("2.7.4", ())


def test_only_what_the_sources_have_is_called_documented(matrix: Matrix) -> None:
    section = (ROOT / "docs" / "images.md").read_text("utf-8")
    section = section.split("## Documented versions")[1]
    rows = re.findall(r"^\| (\d[^|]*) \| (\w+)", section, re.MULTILINE)
    where = {minor: source for minors, source in rows for minor in minors.split(", ")}
    ubuntu = {image.minor for image in all_images(matrix) if image.stack == "ubuntu"}
    assert {*where} == {*ubuntu, "2.4 and newer"}
    documented = {i.minor for i in all_images(matrix) if any(pin.documented for pin in i.pins)}
    chosen_here = {minor for minor, source in where.items() if source == "nowhere"} | {"1.15"}
    assert documented & chosen_here == set()
