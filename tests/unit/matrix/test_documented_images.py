"""The images as documented: which exist, what differs, and the error where nothing differs."""

import re

import pytest
from conftest import ROOT

from imgbuild.errors import InputError
from imgbuild.matrix.images import (
    Image,
    all_images,
    as_documented,
    corrections,
    documented_family,
    unavailable,
)
from imgbuild.matrix.model import Matrix


def test_the_images_as_documented(matrix: Matrix) -> None:
    assert [image.name for image in documented_family(matrix)] == [
        "tf-2.1-gpu-ubuntu-as-documented",
        "tf-2.2-gpu-ubuntu-as-documented",
        "tf-2.3-cpu-ubuntu-as-documented",
        "tf-2.3-gpu-ubuntu-as-documented",
        "tf-2.3-cpu-debian-as-documented",
        "tf-2.3-cpu-debian-intelmpi-as-documented",
    ]


def test_it_has_the_documented_pins_and_its_own_name(images: dict[str, Image]) -> None:
    (image,) = as_documented([images["tf-2.1-gpu-ubuntu"]], each=True)
    assert image.tags[0] == "imgbuild/tensorflow:2.1-gpu-ubuntu-as-documented"
    assert image.version_of("cuda") == "10.0"
    assert image.cuda is image.matrix.cuda["10.0"]
    assert [(name, pin.version) for name, pin in corrections(image).items()] == [("cuda", "10.1")]
    assert image.lock_name == images["tf-2.1-gpu-ubuntu"].lock_name
    # Ubuntu 18.04 never had the documented git: the corrected one stays. Ubuntu 16.04 has it.
    assert image.version_of("git") == "2.17.1"
    assert [pin.documented for pin in unavailable(image)] == ["2.7.4"]
    old = images["tf-1.13-gpu-ubuntu"]
    assert (old.version_of("git"), unavailable(old)) == ("2.7.4", ())


def test_only_what_the_sources_have_is_called_documented(matrix: Matrix) -> None:
    section = (ROOT / "README.md").read_text("utf-8").split('### What "documented" means')[1]
    rows = re.findall(r"^\| (\d[^|]*) \| (\w+)", section, re.MULTILINE)
    where = {minor: source for minors, source in rows for minor in minors.split(", ")}
    ubuntu = {image.minor for image in all_images(matrix) if image.stack == "ubuntu"}
    assert {*where} == {*ubuntu, "2.4 and newer"}
    documented = {i.minor for i in all_images(matrix) if any(pin.documented for pin in i.pins)}
    chosen_here = {minor for minor, source in where.items() if source == "nowhere"} | {"1.15"}
    assert documented & chosen_here == set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tf-1.10-gpu-ubuntu", "the matrix has no other documented version of any of its pins"),
        ("tf-2.0-gpu-ubuntu", "git 2.7.4 was documented and cannot be had for this image"),
    ],
)
def test_the_error_where_nothing_differs(
    images: dict[str, Image], name: str, expected: str
) -> None:
    with pytest.raises(InputError, match=f"{name} is not there as documented, too: {expected}"):
        as_documented([images[name], images["tf-2.1-gpu-ubuntu"]], each=True)


def test_images_that_differ_are_taken_of_several(images: dict[str, Image]) -> None:
    chosen = [images["tf-1.10-gpu-ubuntu"], images["tf-2.1-gpu-ubuntu"]]
    (image,) = as_documented(chosen, each=False)
    assert image.minor == "2.1"
    with pytest.raises(InputError, match="None of the selected"):
        as_documented(chosen[:1], each=False)
