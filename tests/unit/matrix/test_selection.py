"""Selections: versions, variants, stacks, MPI and names, and the error where nothing matches."""

from dataclasses import replace

import pytest

from imgbuild.errors import InputError
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.selection import Selection, select_images

DEBIAN, DOCUMENTED = "debian", "tf-2.1-gpu-ubuntu-as-documented"
NAMED = Selection(names=("tf-2.2-cpu-debian",))


def _names(matrix: Matrix, selection: Selection) -> list[str]:
    return [image.name for image in select_images(matrix, selection)]


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection(("2.2",)), ["tf-2.2-cpu-ubuntu"]),
        (Selection(("2.2.0",)), ["tf-2.2-cpu-ubuntu"]),
        (Selection(("2.2", "1.10"), stack=DEBIAN), ["tf-1.10-cpu-debian", "tf-2.2-cpu-debian"]),
        (Selection(("2.2",), cpu=True, gpu=True), ["tf-2.2-cpu-ubuntu", "tf-2.2-gpu-ubuntu"]),
        # Without --mpi it is the usual one of the stack: on Ubuntu 16.04 that is Intel's.
        (Selection(("2.2",), stack=DEBIAN), ["tf-2.2-cpu-debian"]),
        (Selection(("1.12",), stack=DEBIAN, mpi="intelmpi"), ["tf-1.12-cpu-debian-intelmpi"]),
        (Selection(("1.12",), mpi="intelmpi"), ["tf-1.12-cpu-ubuntu"]),
        (
            Selection(everything=True, stack="debian", mpi="intelmpi"),
            [f"tf-{v}-cpu-debian-intelmpi" for v in ("1.12", "1.15", "2.2", "2.3")],
        ),
        (
            Selection(names=("tf-2.2-cpu-debian", "tf-1.10-cpu-ubuntu", "tf-2.2-cpu-debian")),
            ["tf-1.10-cpu-ubuntu", "tf-2.2-cpu-debian"],
        ),
        (Selection(names=(DOCUMENTED,)), [DOCUMENTED]),
        (Selection(("2.1",), gpu=True, as_documented=True), [DOCUMENTED]),
        (
            Selection(gpu=True, everything=True, as_documented=True),
            [f"tf-{minor}-gpu-ubuntu-as-documented" for minor in ("2.1", "2.2", "2.3")],
        ),
    ],
)
def test_selected_images(matrix: Matrix, selection: Selection, names: list[str]) -> None:
    assert _names(matrix, selection) == names


@pytest.mark.parametrize(("stack", "count"), [("debian", 14), ("ubuntu", 20), (None, 34)])
def test_everything_is_the_family_without_images_as_documented(
    matrix: Matrix, stack: str | None, count: int
) -> None:
    names = _names(matrix, Selection(everything=True, stack=stack))
    assert len(names) == count
    assert not [name for name in names if name.endswith("as-documented")]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), "Select images with --tf VERSION or --all"),
        (Selection(("1.1",)), "--tf 1.1: no such TensorFlow in the matrix"),
        (Selection(("2.2; rm",)), "is not a version such as 2.2"),
        (Selection(("2.2",), gpu=True, stack=DEBIAN), "TensorFlow 2.2, gpu, on the stack debian"),
        (Selection(("2.2",), stack="beos"), "on the stack beos"),
        (Selection(("1.10",), stack=DEBIAN, mpi="intelmpi"), "on the stack debian with intelmpi"),
        (Selection(("2.2",), cpu=True, gpu=True, stack=DEBIAN), "No image is TensorFlow 2.2, gpu"),
        (Selection(gpu=True, stack=DEBIAN, everything=True), "TensorFlow of any version, gpu"),
    ],
)
def test_a_selection_without_images_lists_those_that_exist(
    matrix: Matrix, selection: Selection, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        select_images(matrix, selection)
    assert expected in str(caught.value)
    assert "There are: 1.10, 1.11" in str(caught.value)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(("2.2",), mpi="lam"), "no such MPI; there are: intelmpi, openmpi"),
        (Selection(("2.2",), everything=True), "give --tf or --all, not both"),
        (Selection(("2.2",), as_documented=True), "tf-2.2-cpu-ubuntu is as documented already"),
        (replace(NAMED, tensorflow=("2.2",)), "--name cannot be combined with --tf"),
        (replace(NAMED, mpi="openmpi"), "--name cannot be combined"),
    ],
)
def test_contradictions(matrix: Matrix, selection: Selection, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        select_images(matrix, selection)


def test_an_unknown_name_is_reported_with_the_most_similar_ones(matrix: Matrix) -> None:
    names = ("tf-2.2-cpu-debian", "tf-2.2-cpu-debain", "redis")
    with pytest.raises(InputError) as caught:
        select_images(matrix, Selection(names=names))
    assert "--name 'tf-2.2-cpu-debain': no such image" in str(caught.value)
    assert "tf-2.2-cpu-debian, " in str(caught.value)
    assert "--name 'redis': no such image" in str(caught.value)
    assert "imgbuild list" in str(caught.value)


@pytest.mark.parametrize(
    ("selection", "everything"), [(Selection(), True), (Selection(("2.2",)), False), (NAMED, False)]
)
def test_or_everything(selection: Selection, *, everything: bool) -> None:
    assert selection.or_everything.everything is everything
