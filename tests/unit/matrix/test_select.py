"""Selections: versions, variants, stacks, and what is said when nothing matches."""

import pytest

from imgbuild.errors import InputError
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.selection import Selection, select_images


def _names(matrix: Matrix, selection: Selection) -> list[str]:
    return [image.name for image in select_images(matrix, selection)]


@pytest.mark.parametrize("version", ["2.2", "2.2.0"])
def test_a_version_in_either_spelling(matrix: Matrix, version: str) -> None:
    assert _names(matrix, Selection((version,))) == ["tf-2.2-cpu-ubuntu"]


def test_several_versions_come_in_the_order_of_the_matrix(matrix: Matrix) -> None:
    names = _names(matrix, Selection(("2.2", "1.10"), stack="debian"))
    assert names == ["tf-1.10-cpu-debian", "tf-2.2-cpu-debian"]


def test_one_version_on_the_documented_stack_has_two_variants(matrix: Matrix) -> None:
    names = _names(matrix, Selection(("2.2",), cpu=True, gpu=True))
    assert names == ["tf-2.2-cpu-ubuntu", "tf-2.2-gpu-ubuntu"]


def test_one_and_ten_are_not_one(matrix: Matrix) -> None:
    with pytest.raises(InputError, match=r"--tf 1\.1: no such TensorFlow"):
        select_images(matrix, Selection(("1.1",)))


def test_everything_on_one_stack(matrix: Matrix) -> None:
    assert len(_names(matrix, Selection(everything=True, stack="debian"))) == 14
    assert len(_names(matrix, Selection(everything=True, stack="ubuntu"))) == 20


def test_without_a_word_of_mpi_it_is_the_stacks_own(matrix: Matrix) -> None:
    one, both = ("2.2",), ("1.12", "2.2")
    assert _names(matrix, Selection(one, stack="debian")) == ["tf-2.2-cpu-debian"]
    intel = Selection(both, stack="debian", mpi="intelmpi")
    assert _names(matrix, intel) == ["tf-1.12-cpu-debian-intelmpi", "tf-2.2-cpu-debian-intelmpi"]
    # On Ubuntu 16.04 the usual one is Intel's.
    assert _names(matrix, Selection(("1.12",), mpi="intelmpi")) == ["tf-1.12-cpu-ubuntu"]
    everything = _names(matrix, Selection(everything=True, stack="debian", mpi="intelmpi"))
    assert everything == [f"tf-{v}-cpu-debian-intelmpi" for v in ("1.12", "1.15", "2.2", "2.3")]


def test_an_mpi_that_no_image_has(matrix: Matrix) -> None:
    with pytest.raises(InputError, match="no such MPI; there are: intelmpi, openmpi"):
        select_images(matrix, Selection(("2.2",), mpi="lam"))


def test_everything_is_the_family_without_the_images_as_documented(matrix: Matrix) -> None:
    names = _names(matrix, Selection(everything=True))
    assert len(names) == 34
    assert not [name for name in names if name.endswith("as-documented")]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), "Select images with --tf VERSION or --all"),
        (Selection(("2.9",)), "--tf 2.9: no such TensorFlow in the matrix"),
        (Selection(("2.2; rm",)), "is not a version such as 2.2"),
        (
            Selection(("2.2",), gpu=True, stack="debian"),
            "No image is TensorFlow 2.2, gpu, on the stack debian",
        ),
        (Selection(("2.2",), stack="beos"), "on the stack beos"),
        (
            Selection(("1.10",), stack="debian", mpi="intelmpi"),
            "No image is TensorFlow 1.10, cpu, on the stack debian with intelmpi",
        ),
        (
            Selection(("2.2",), cpu=True, gpu=True, stack="debian"),
            "No image is TensorFlow 2.2, gpu",
        ),
        (
            Selection(gpu=True, stack="debian", everything=True),
            "No image is TensorFlow of any version, gpu",
        ),
    ],
)
def test_what_matches_nothing_lists_what_exists(
    matrix: Matrix, selection: Selection, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        select_images(matrix, selection)
    assert expected in str(caught.value)
    assert "There are: 1.10, 1.11" in str(caught.value)


def test_everything_and_one_version_contradict_each_other(matrix: Matrix) -> None:
    with pytest.raises(InputError, match="give --tf or --all, not both"):
        select_images(matrix, Selection(("2.2",), everything=True))
