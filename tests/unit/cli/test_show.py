"""What ``imgbuild show`` says of an image: pins, sources, reasons, locks, GPUs."""

from pathlib import Path

import pytest

from imgbuild.cli.show_command import described, image_text
from imgbuild.matrix.images import Image, documented_family
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project
from imgbuild.text import WIDTH
from releases import release_of


@pytest.fixture
def every(images: dict[str, Image], matrix: Matrix) -> dict[str, Image]:
    """Return the family and the images as documented, by name."""
    return {**images, **{image.name: image for image in documented_family(matrix)}}


def _text(image: Image, project: Project) -> str:
    return image_text(described(image, project.locks))


def test_value_source_and_reason(images: dict[str, Image], project: Project) -> None:
    text = _text(images["tf-2.3-cpu-debian"], project)
    assert "horovod      0.20.3     Python package index: horovod, source distribution" in text
    assert "    documented: 0.20.0\n    why: the last patch release of 0.20" in text
    assert "azureml-train-core 1.20.0" in text, "who documented it"
    assert "imgbuild/tensorflow:2.3-cpu" in text.split()
    assert f"{release_of('2.3')}-cpu-py36-debian12-openmpi4.1.4-RELEASE" in text.split()
    assert "minimum driver" not in text


def test_an_image_without_horovod_says_why(images: dict[str, Image], project: Project) -> None:
    text = _text(images["tf-2.21-cpu-debian-no-mpi"], project)
    assert "horovod, mpi -\n    why: for training on one machine" in text


def test_a_corrected_pin_of_a_gpu_image(images: dict[str, Image], project: Project) -> None:
    text = _text(images["tf-2.1-gpu-ubuntu"], project)
    repository = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1804/x86_64"
    assert f"cuda         10.1\n    {repository}\n    documented: 10.0\n    why: the wheel" in text
    assert "documented: 2.7.4, which is not available for this image: the corrected one" in text
    assert "why: Ubuntu 16.04 has 2.7.4, and the images on it have it; the archive of" in text
    assert "cuda-cudart-10-1=10.1.243-1" in text


def test_the_driver_and_the_gpus(images: dict[str, Image], project: Project) -> None:
    text = _text(images["tf-2.1-gpu-ubuntu"], project)
    assert "minimum driver 418.39\n    source: NVIDIA's CUDA Toolkit Release Notes" in text
    assert "    Maxwell    5.0   PTX only        GeForce GTX 750 Ti" in text
    assert "    Turing     7.5   native kernels  Tesla T4" in text
    assert "    Ampere     8.0   nothing         A100" in text
    assert "Ampere and newer GPUs are not supported by CUDA 10.1:" in text


def test_as_documented_names_the_rule_that_is_broken(
    every: dict[str, Image], project: Project
) -> None:
    shown = described(every["tf-2.1-gpu-ubuntu-as-documented"], project.locks)
    assert [broken["rule"] for broken in shown["broken_rules"]] == ["tensorflow-cuda"]
    text = image_text(shown)
    assert "as documented; the family has 10.1 (the wheel loads libcudart.so.10.1" in text
    assert "minimum driver 410.48" in text


def test_what_no_lock_has_recorded_is_unlocked(images: dict[str, Image], tmp_path: Path) -> None:
    image = images["tf-2.1-cpu-ubuntu"]
    assert image.python.origin == "conda"
    first, *others = image.python.packages
    text = image_text(described(image, tmp_path))
    assert text.count("    unlocked ") == len(image.python.packages)
    lines = [f"unlocked  {first}", *(f"{'a' * 64}  {url}" for url in others)]
    (tmp_path / "conda-3.6.2.txt").write_text("\n".join(lines) + "\n")
    text = image_text(described(image, tmp_path))
    total = len(image.python.packages)
    assert f"    {total - 1} of {total} packages have a recorded sha256" in text
    assert text.count("unlocked") == 1


def test_lines_fit_a_terminal(every: dict[str, Image], project: Project) -> None:
    """URLs and digests are not broken, so that they can be copied."""
    for image in every.values():
        long = [line for line in _text(image, project).splitlines() if len(line) > WIDTH]
        assert [line for line in long if " " in line.strip()] == []
