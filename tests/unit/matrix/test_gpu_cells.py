"""Each GPU image on each GPU with each driver: the list, the check and TensorFlow agree."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.matrix.gpus import GENERATIONS
from imgbuild.matrix.images import Image
from support.gpu_cells import DRIVERS, check_cells, loader_differences, read_answers, read_facts

#: The stack on which TensorFlow itself was asked. CUDA of the others cannot be downloaded freely.
STACK = "debian"


@pytest.fixture
def gpu_images(images: Mapping[str, Image]) -> list[Image]:
    return [image for image in images.values() if image.cuda]


def test_the_check_at_start_agrees_with_the_list(gpu_images: list[Image], project: Project) -> None:
    assert len(gpu_images) * len(GENERATIONS) * len(DRIVERS) >= 3000
    for image in gpu_images:
        assert check_cells(image, project) == []


def test_a_check_that_differs_from_the_list_is_found(
    gpu_images: list[Image], project: Project, tmp_path: Path
) -> None:
    (image,) = (image for image in gpu_images if image.name == "tf-2.12-gpu-debian")
    here = Project(tmp_path)
    shutil.copytree(project.files / "gpu-start", here.files / "gpu-start")
    facts = read_facts(image, project)
    for changed in ({"driver": "470.0"}, {"native": ["7.0"]}, {"newest": "12.0"}):
        path = here.dockerfiles / image.name / "gpu.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**facts, **changed}))
        assert check_cells(image, here), changed


def test_the_drivers_have_the_limits_of_every_cuda(gpu_images: list[Image]) -> None:
    assert {image.cuda.driver for image in gpu_images if image.cuda} <= {*DRIVERS}


def test_tensorflow_agrees_with_the_list(gpu_images: list[Image]) -> None:
    recorded = read_answers()
    asked = [image for image in gpu_images if image.stack == STACK]
    assert {image.name for image in asked} == {*recorded}, "python benchmarks/gpu_cells.py --write"
    assert len(asked) * len(GENERATIONS) * len(DRIVERS) >= 3000
    for image in asked:
        answers = recorded[image.name]
        now = (image.tensorflow, image.version_of("cuda"))
        assert (answers.tensorflow, answers.cuda) == now, "python benchmarks/gpu_cells.py --write"
        assert loader_differences(image, answers) == []


def test_a_difference_is_found(gpu_images: list[Image]) -> None:
    (image,) = (image for image in gpu_images if image.name == "tf-2.12-gpu-debian")
    answers = read_answers()[image.name]
    wrong = {**answers.loader, "8.0": "PTX"}
    assert len(loader_differences(image, answers._replace(loader=wrong))) >= 5
    newer = {**answers.runtime, "11000": False}
    assert loader_differences(image, answers._replace(runtime=newer))
