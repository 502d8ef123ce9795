"""Images by their exact names."""

import pytest

from imgbuild.errors import InputError
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.selection import named_images


def _names(matrix: Matrix, *names: str) -> list[str]:
    return [image.name for image in named_images(matrix, names)]


def test_exactly_these_once_in_the_order_of_the_matrix(matrix: Matrix) -> None:
    wanted = ("tf-2.2-cpu-debian", "tf-1.10-cpu-ubuntu", "tf-2.2-cpu-debian")
    assert _names(matrix, *wanted) == ["tf-1.10-cpu-ubuntu", "tf-2.2-cpu-debian"]


def test_an_image_with_another_mpi_and_one_as_documented(matrix: Matrix) -> None:
    for name in ("tf-2.2-cpu-debian-intelmpi", "tf-2.1-gpu-ubuntu-as-documented"):
        assert _names(matrix, name) == [name]


def test_a_name_that_is_none_is_told_with_those_most_like_it(matrix: Matrix) -> None:
    with pytest.raises(InputError) as caught:
        _names(matrix, "tf-2.2-cpu-debian", "tf-2.2-cpu-debain", "redis")
    said = str(caught.value)
    assert "--name 'tf-2.2-cpu-debain': no such image" in said
    assert "tf-2.2-cpu-debian, " in said
    assert "--name 'redis': no such image" in said
    assert "imgbuild list" in said
