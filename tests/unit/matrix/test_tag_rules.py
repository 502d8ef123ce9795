"""A scheme of tags that cannot be, or that mixes images up, is refused with its place."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.tags import tag_faults

Edited = Callable[..., Path]
Refusal = Callable[[Path], str]

IMMUTABLE = "[tensorflow, variant, python, cuda, mpi, os, documented, release]"
FIRST = "[tensorflow, variant, flavour, stack, documented]"
SECOND = "[minor, variant, flavour, stack, documented]"
STACK = "  debian:\n    summary: Debian 12"


def _renamed_stack(path: Path, name: str) -> Path:
    """Give the stack ``debian`` another name, which is a legal one."""
    document = yaml.load(path.read_text(), Loader=yaml.CBaseLoader)  # noqa: S506 - no tags
    document["stacks"][name] = document["stacks"].pop("debian")
    for row in document["images"]:
        row["stack"] = name if row["stack"] == "debian" else row["stack"]
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False))
    return path


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (IMMUTABLE, "[tensorflow, colour, release]", "'colour' is not allowed; allowed: 'tensorf"),
        (
            IMMUTABLE,
            IMMUTABLE.replace(", release", ""),
            "tags.immutable: the part 'release' is missing: without it the next release would",
        ),
        (
            FIRST,
            FIRST.replace("stack", "release, stack"),
            "tags.moving, entry 1: a tag that names its release cannot move to the next one",
        ),
        (
            IMMUTABLE,
            IMMUTABLE.replace("variant, ", "").replace("cuda, ", ""),
            "-ubuntu16.04-20991231.9999, as tf-1.10-cpu-ubuntu is by tags.immutable (and",
        ),
        (
            IMMUTABLE,
            IMMUTABLE.replace("documented, ", ""),
            "tf-2.3-cpu-ubuntu-as-documented would be 2.3.0-cpu-py36-openmpi3.1.2-ubuntu18.04-2",
        ),
        (
            IMMUTABLE,
            IMMUTABLE.replace("mpi, ", ""),
            "(and 4 more); add a part that tells them apart",
        ),
        (
            SECOND,
            SECOND.replace("minor, ", ""),
            "tf-1.11-cpu-ubuntu would be cpu, as tf-1.10-cpu-ubuntu is by tags.moving, entry 2",
        ),
        (
            FIRST,
            FIRST.replace("flavour, ", ""),
            "tf-1.12-cpu-debian-intelmpi would be 1.12.0-cpu-d",
        ),
        (FIRST, FIRST.replace("stack, ", ""), "tf-1.10-cpu-debian would be 1.10.0-cpu, as tf-1.10"),
        (SECOND, "[stack, documented]", "tf-1.10-cpu-ubuntu would be '': a registry takes letters"),
        (
            "version: 4.1.4\n",
            "version: 4.1.4+1\n",
            "openmpi4.1.4+1-debian12-20991231.9999': a registry takes letters, digits and '_.-'",
        ),
        (
            "version: 4.1.4\n",
            f"version: 4.{'1' * 80}.4\n",
            "tf-1.10-cpu-debian would be '1.10.0-cpu-py36-openmpi4.111",
        ),
    ],
)
def test_a_scheme_that_cannot_be_is_refused(
    edited: Edited, refusal: Refusal, old: str, new: str, expected: str
) -> None:
    assert expected in refusal(edited(old, new))


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
        ("index", "[stack]", "tf-1.10-cpu-index would be 'index': 'index' and tags that end in"),
        (
            "a.record",
            "[tensorflow, variant, documented, flavour, stack]",
            "tf-1.10-cpu-a.record would be '1.10.0-cpu-a.record': 'index' and tags that end in",
        ),
    ],
)
def test_a_moving_tag_is_no_record_and_no_index(
    edited: Edited, refusal: Refusal, name: str, scheme: str, expected: str
) -> None:
    assert expected in refusal(_renamed_stack(edited(FIRST, scheme), name))


def test_a_moving_tag_is_the_immutable_one_of_no_release(edited: Edited, refusal: Refusal) -> None:
    scheme = "[tensorflow, variant, python, mpi, os, documented, stack]"
    said = refusal(_renamed_stack(edited(FIRST, scheme), "20991231.7"))
    tag = "1.10.0-cpu-py36-openmpi4.1.4-debian12-20991231.7"
    assert f"would be {tag}, as tf-1.10-cpu-20991231.7 is by tags.immutable" in said


def test_the_place_is_that_of_the_scheme(edited: Edited, refusal: Refusal) -> None:
    path = edited(SECOND, SECOND.replace("minor, ", ""))
    line = next(i for i, one in enumerate(path.read_text().splitlines(), 1) if "- [variant" in one)
    assert refusal(path).startswith(f"matrix.yaml:{line}:7: tags.moving, entry 2: ")


@pytest.mark.parametrize(
    ("change", "place", "expected"),
    [
        ((IMMUTABLE, "[]"), "  immutable: []", "immutable must be a list that is not empty"),
        ((FIRST, "[]"), "    - []", "tags.moving, entry 1 must not be empty"),
        ((SECOND, "[]"), "    - []", "tags.moving, entry 2 must not be empty"),
        (
            (IMMUTABLE, IMMUTABLE.replace("mpi,", "mpi, mpi,")),
            "  immutable: [",
            "tags.immutable: the part 'mpi' is listed twice; leave one out",
        ),
        (
            (SECOND, SECOND.replace("[minor,", "[minor, variant,")),
            "    - [minor,",
            "tags.moving, entry 2: the part 'variant' is listed twice; leave one out",
        ),
    ],
)
def test_empty_and_repeated_parts_are_one_fault_each(
    edited: Edited, refusal: Refusal, change: tuple[str, str], place: str, expected: str
) -> None:
    path = edited(*change)
    lines = path.read_text().splitlines()
    line = next(number for number, one in enumerate(lines, 1) if one.startswith(place))
    said = refusal(path).splitlines()
    assert [one.split(" ", 1)[1] for one in said[:-1]] == [expected]
    assert said[0].startswith(f"matrix.yaml:{line}:")
    assert said[-1].endswith(": 1 fault; nothing was done.")


def test_a_tag_of_nothing_is_told_once(edited: Edited, refusal: Refusal) -> None:
    said = refusal(edited(SECOND, "[stack, documented]"))
    assert "would be , as" not in said


def test_tags_are_required(edited: Edited, refusal: Refusal) -> None:
    path = edited("\ntags:\n", "\ntagz:\n")
    assert "missing key 'tags'" in refusal(path)


def test_there_may_be_no_moving_tag(edited: Edited) -> None:
    path = edited(f"  moving:\n    - {FIRST}\n    - {SECOND}\n", "  moving: []\n")
    assert load_matrix(path).tags.moving == ()


def test_the_same_tag_by_two_entries_is_one_image_s_own(edited: Edited) -> None:
    assert load_matrix(edited(SECOND, FIRST))


def test_broken_references_do_not_hide_the_scheme_s_faults(
    edited: Edited, refusal: Refusal
) -> None:
    path = edited(FIRST, FIRST.replace("flavour, ", ""))
    path.write_text(path.read_text().replace("mpi: openmpi-3.1.2", "mpi: openmpi-9"))
    said = refusal(path)
    assert "no MPI 'openmpi-9'" in said
    assert "tf-1.12-cpu-debian-intelmpi would be" in said


def test_the_committed_scheme_has_no_fault(matrix: Matrix) -> None:
    assert tag_faults(matrix) == []


def test_the_exit_code_is_that_of_wrong_input(edited: Edited) -> None:
    folder = str(edited(IMMUTABLE, "[release, variant]").parent)
    command = [sys.executable, "-c", "from imgbuild.cli import main; main()", "list"]
    ran = subprocess.run([*command, "--project", folder], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert b"imgbuild: matrix.yaml:" in ran.stderr
