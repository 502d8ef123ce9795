"""Each GPU image on each GPU with each driver: the list and the check at start agree."""

from collections.abc import Mapping

import pytest

from imgbuild.core.project import Project
from imgbuild.matrix.gpus import GENERATIONS
from imgbuild.matrix.images import Image
from support.gpu_cells import DRIVERS, check_cells


@pytest.fixture
def gpu_images(images: Mapping[str, Image]) -> list[Image]:
    return [image for image in images.values() if image.cuda]


def test_the_check_at_start_agrees_with_the_list(gpu_images: list[Image], project: Project) -> None:
    assert len(gpu_images) * len(GENERATIONS) * len(DRIVERS) >= 3000
    for image in gpu_images:
        assert check_cells(image, project) == []


def test_the_drivers_have_the_limits_of_every_cuda(gpu_images: list[Image]) -> None:
    assert {image.cuda.driver for image in gpu_images if image.cuda} <= {*DRIVERS}
