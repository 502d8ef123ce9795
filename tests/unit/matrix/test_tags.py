"""The tags of the real matrix; a scheme of tags that is wrong or ambiguous is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from imgbuild.core.yaml_file import read_document
from imgbuild.matrix.images import all_images, planned_tags, tags_with_pins
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.selection import find_image
from imgbuild.matrix.tags import LONGEST_RELEASE

Edited = Callable[..., Path]
Refusal = Callable[[Path], str]

IMMUTABLE = "[tensorflow, variant, python, cuda, os, mpi, release]"
FIRST = "[minor, variant, stack, flavour]"
SECOND = "[tensorflow, variant, stack, flavour]"


def test_a_tag_of_a_build_is_a_published_one_and_of_one_image(matrix: Matrix) -> None:
    for image in all_images(matrix):
        moving = planned_tags(image, "20261120.1").moving
        assert {tag.removeprefix("imgbuild/tensorflow:") for tag in image.tags} == {*moving}
        assert {find_image(matrix, tag) for tag in (*image.tags, *moving)} == {image}


def test_tags_with_pins_of_an_earlier_release(matrix: Matrix) -> None:
    for image in all_images(matrix):
        pins = {pin.component: pin.version for pin in image.pins}
        assert tags_with_pins(image, pins) == tags_with_pins(image, {}) == planned_tags(image)
    gpu = find_image(matrix, "2.2-gpu")
    pins = {
        "tensorflow": "2.1.9",
        "python": "3.5.1",
        "cuda": "9.9",
        "mpi": "openmpi-1.2",
        "os": "7",
    }
    tags = tags_with_pins(gpu, pins)
    assert tags.immutable == "2.1.9-gpu-py35-cuda9.9-ubuntu7-openmpi1.2-RELEASE"
    assert tags.moving == ("2.1-gpu-ubuntu", "2.1.9-gpu-ubuntu")


def test_the_short_tags_are_those_of_the_default_stack(edited: Edited) -> None:
    changed = load_matrix(edited("stack: debian, variant: cpu}", "stack: ubuntu, variant: cpu}"))
    tags = {image.name: image.tags[0].partition(":")[2] for image in all_images(changed)}
    assert tags["tf-2.2-cpu-ubuntu"] == "2.2-cpu"
    assert tags["tf-2.2-cpu-debian"] == "2.2-cpu-debian"


def test_two_entries_with_the_same_tag_are_one(edited: Edited) -> None:
    changed = load_matrix(edited(SECOND, FIRST))
    assert all(len(planned_tags(image).moving) == 1 for image in all_images(changed))


def test_tags_of_older_matrices_are_the_same(edited: Edited, matrix: Matrix) -> None:
    """Their schemes have a part for images with documented pins, which no longer exist."""
    path = edited(SECOND, "[tensorflow, variant, stack, flavour, documented]")
    text = path.read_text().replace("mpi, release]", "mpi, documented, release]")
    path.write_text(text, encoding="utf-8")
    tags = [planned_tags(image) for image in all_images(load_matrix(path))]
    assert tags == [planned_tags(image) for image in all_images(matrix)]


def _renamed_stack(path: Path, name: str) -> Path:
    """Give the stack ``ubuntu`` another name, which is a legal one."""
    document = read_document(path).value
    document["stacks"][name] = document["stacks"].pop("ubuntu")
    for row in document["images"]:
        row["stack"] = name if row["stack"] == "ubuntu" else row["stack"]
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False))
    return path


@pytest.mark.parametrize(
    ("scheme", "edit", "expected"),
    [
        (IMMUTABLE, ("variant", "colour"), "'colour' is not allowed"),
        (IMMUTABLE, (", release", ""), "tags.immutable: the part 'release' is missing"),
        (FIRST, ("stack", "release, stack"), "tags.moving, entry 1: a moving tag cannot"),
        (IMMUTABLE, ("variant, python, cuda, ", ""), "1.9999, which is the tag of tf-1.10-"),
        (IMMUTABLE, ("mpi, ", ""), "(and 4 more)"),
        (FIRST, ("minor, ", ""), "would be cpu-ubuntu, which is the tag of tf-1.10-cpu-ubuntu by"),
        (FIRST, ("stack, ", ""), "-cpu-debian would be 1.1"),
        (FIRST, ("minor, variant, stack, ", ""), "would be '': a tag consists of"),
        (IMMUTABLE, ("mpi, ", "mpi, mpi, "), "the part 'mpi' is listed twice"),
        (IMMUTABLE, (IMMUTABLE[1:-1], ""), "immutable must be a list that is not empty"),
        (FIRST, (FIRST[1:-1], ""), "an entry must be a list that is not empty"),
    ],
)
def test_a_scheme_that_cannot_be_is_refused(
    edited: Edited, refusal: Refusal, scheme: str, edit: tuple[str, str], expected: str
) -> None:
    changed = scheme.replace(*edit)
    path = edited(scheme, changed)
    lines = enumerate(path.read_text().splitlines(), 1)
    place = next(number for number, line in lines if line.endswith(changed))
    (found,) = [line for line in refusal(path).splitlines() if expected in line]
    assert found.startswith(f"matrix.yaml:{place}:")


def test_a_version_that_no_tag_can_hold_is_refused(edited: Edited, refusal: Refusal) -> None:
    said = refusal(edited("version: 4.1.4\n", "version: 4.1.4+1\n"))
    assert "debian12-openmpi4.1.4+1-20991231.9999': a tag consists of letters, digits" in said


def test_there_is_room_for_the_record_beside_the_longest_release(
    edited: Edited, refusal: Refusal, matrix: Matrix
) -> None:
    """128 characters are a registry's limit, and ``.record`` is 7 of them."""
    images = [image for image in all_images(matrix) if image.mpi_name == "openmpi-4.1.4"]
    tags = [planned_tags(image, LONGEST_RELEASE).immutable for image in images]
    rest = max(map(len, tags)) - len("4.1.4")
    assert load_matrix(edited("version: 4.1.4\n", f"version: {'1' * (121 - rest)}\n"))
    said = refusal(edited("version: 4.1.4\n", f"version: {'1' * (122 - rest)}\n"))
    assert "-20991231.9999': this tag may have at most 121 characters" in said


@pytest.mark.parametrize(
    ("name", "scheme", "expected"),
    [
        (
            "20991231.7",
            "python, cuda, os, mpi, documented, stack",
            "the tag of tf-1.10-cpu-20991231.7 by tags",
        ),
        ("a.record", "documented, flavour, stack", "-cpu-a.record': only tags of records end"),
        ("a-index", "documented, flavour, stack", "-cpu-a-index': only tags of indexes end"),
    ],
)
def test_a_moving_tag_is_no_record_and_no_release(
    edited: Edited, refusal: Refusal, name: str, scheme: str, expected: str
) -> None:
    path = edited(FIRST, f"[tensorflow, variant, {scheme}]")
    assert expected in refusal(_renamed_stack(path, name))


def test_a_build_needs_a_tag(edited: Edited, refusal: Refusal) -> None:
    moving = f"  moving:\n    - {FIRST}\n    - {SECOND}\n"
    assert "moving must be a list that is not empty" in refusal(edited(moving, "  moving: []\n"))
