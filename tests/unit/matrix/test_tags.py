"""The tags of the real matrix; a scheme of tags that is wrong or ambiguous is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from imgbuild.matrix.images import Image
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.tags import planned_tags

Edited = Callable[..., Path]
Refusal = Callable[[Path], str]

IMMUTABLE = "[tensorflow, variant, python, cuda, mpi, os, documented, release]"
FIRST = "[tensorflow, variant, flavour, stack, documented]"
SECOND = "[minor, variant, flavour, stack, documented]"


def test_two_entries_with_the_same_tag_are_one(images: dict[str, Image], matrix: Matrix) -> None:
    entry = matrix.tags.moving[0]
    tags = matrix.tags.model_copy(update={"moving": (entry, entry[:2] + entry[3:])})
    changed = matrix.model_copy(update={"tags": tags})
    assert planned_tags(replace(images["tf-2.2-gpu-ubuntu"], matrix=changed)).moving == (
        "2.2.0-gpu",
    )


def test_the_stack_that_tags_leave_out_is_no_default_of_selections(
    images: dict[str, Image], matrix: Matrix
) -> None:
    """In the matrix of an earlier version, which has no such key, it was the default stack."""
    tags = matrix.tags.model_copy(update={"unnamed_stack": None})
    earlier = matrix.model_copy(update={"tags": tags})
    assert matrix.tags.unnamed_stack != matrix.defaults.stack == "debian"
    image = images["tf-2.2-cpu-debian"]
    assert planned_tags(image).moving[1] == "2.2-cpu-debian"
    assert planned_tags(replace(image, matrix=earlier)).moving[1] == "2.2-cpu"


def _renamed_stack(path: Path, name: str) -> Path:
    """Give the stack ``debian`` another name, which is a legal one."""
    document = yaml.load(path.read_text(), Loader=yaml.CBaseLoader)  # noqa: S506 - no tags
    document["stacks"][name] = document["stacks"].pop("debian")
    document["defaults"]["stack"] = name
    for row in document["images"]:
        row["stack"] = name if row["stack"] == "debian" else row["stack"]
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False))
    return path


@pytest.mark.parametrize(
    ("scheme", "edit", "expected"),
    [
        (IMMUTABLE, ("variant", "colour"), "'colour' is not allowed"),
        (IMMUTABLE, (", release", ""), "tags.immutable: the part 'release' is missing"),
        (FIRST, ("stack", "release, stack"), "tags.moving, entry 1: a tag that names its release"),
        (IMMUTABLE, ("variant, python, cuda, ", ""), "-20991231.9999, as tf-1.10-cpu-ubuntu is by"),
        (
            IMMUTABLE,
            ("documented, ", ""),
            "tf-2.3-cpu-ubuntu-as-documented would be 2.3.0-cpu-py36-",
        ),
        (IMMUTABLE, ("mpi, ", ""), "(and 4 more)"),
        (SECOND, ("minor, ", ""), "would be cpu, as tf-1.10-cpu-ubuntu is by tags.moving, entry 2"),
        (FIRST, ("stack, ", ""), "-cpu-debian would be 1.1"),
        (SECOND, ("minor, variant, flavour, ", ""), "would be '': a registry takes"),
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
    assert "openmpi4.1.4+1-debian12-20991231.9999': a registry takes letters, digits" in said


def test_there_is_room_for_the_record_beside_the_longest_release(
    edited: Edited, refusal: Refusal
) -> None:
    """128 characters are a registry's limit, and ``.record`` is 7 of them."""
    rest = len("2.3.0-cpu-py36-openmpi-debian12-as-documented-20991231.9999")
    assert load_matrix(edited("version: 4.1.4\n", f"version: {'1' * (121 - rest)}\n"))
    said = refusal(edited("version: 4.1.4\n", f"version: {'1' * (122 - rest)}\n"))
    assert "-20991231.9999': a tag has at most 121 characters here" in said


@pytest.mark.parametrize(
    ("name", "scheme", "expected"),
    [
        (
            "20991231.7",
            "python, mpi, os, documented, stack",
            "as tf-1.10-cpu-20991231.7 is by tags",
        ),
        ("a.record", "documented, flavour, stack", "-cpu-a.record': tags that end"),
    ],
)
def test_a_moving_tag_is_no_record_and_no_release(
    edited: Edited, refusal: Refusal, name: str, scheme: str, expected: str
) -> None:
    path = edited(FIRST, f"[tensorflow, variant, {scheme}]")
    assert expected in refusal(_renamed_stack(path, name))


@pytest.mark.parametrize(
    ("old", "new"),
    [(f"  moving:\n    - {FIRST}\n    - {SECOND}\n", "  moving: []\n"), (SECOND, FIRST)],
)
def test_no_moving_tag_and_equal_entries_are_allowed(edited: Edited, old: str, new: str) -> None:
    assert load_matrix(edited(old, new))


def test_broken_references_do_not_hide_the_scheme_s_faults(
    edited: Edited, refusal: Refusal
) -> None:
    path = edited(FIRST, FIRST.replace("flavour, ", ""))
    path.write_text(path.read_text().replace("mpi: openmpi-3.1.2", "mpi: openmpi-9"))
    said = refusal(path)
    assert "no MPI 'openmpi-9'" in said
    assert "tf-1.12-cpu-debian-intelmpi would be" in said
