"""What ``imgbuild show`` says of an image: pins, sources, reasons, locks, GPUs."""

from pathlib import Path

from imgbuild.cli.show_command import image_text, read_image_facts
from imgbuild.core.project import Project
from imgbuild.core.text import WIDTH
from imgbuild.matrix.images import Image
from support.releases import release_of


def _text(image: Image, project: Project) -> str:
    return image_text(read_image_facts(image, project.locks))


def test_an_image_has_its_pins_with_source_and_reason_and_its_tags(
    images: dict[str, Image], project: Project
) -> None:
    text = _text(images["tf-2.3-cpu-debian"], project)
    assert "horovod      0.20.3     Python package index: horovod, source distribution" in text
    assert "    documented: 0.20.0\n    why: the last patch release of 0.20" in text
    assert "imgbuild/tensorflow:2.3-cpu" in text.split()
    assert f"{release_of('2.3')}-cpu-py36-debian12-openmpi4.1.4-RELEASE" in text.split()
    assert "minimum driver" not in text
    text = _text(images["tf-2.21-cpu-debian-no-mpi"], project)
    assert "horovod, mpi -\n    why: training on one machine" in text


def test_a_gpu_image_has_its_driver_its_gpus_and_what_was_corrected(
    images: dict[str, Image], project: Project
) -> None:
    text = _text(images["tf-2.1-gpu-ubuntu"], project)
    assert "    documented: 10.0\n    why: the wheel" in text
    assert "documented: 2.7.4, which is not available for this image\n    why: the archive" in text
    assert "cuda-cudart-10-1=10.1.243-1" in text
    assert "minimum driver 418.39\n    source: NVIDIA's CUDA Toolkit Release Notes" in text
    assert "    Turing     7.5   native kernels  Tesla T4" in text


def test_what_no_lock_has_recorded_is_unlocked(images: dict[str, Image], tmp_path: Path) -> None:
    image = images["tf-2.1-cpu-ubuntu"]
    assert image.python.origin == "conda"
    first, *others = image.python.packages
    text = image_text(read_image_facts(image, tmp_path))
    assert text.count("    unlocked ") == len(image.python.packages)
    lines = [f"unlocked  {first}", *(f"{'a' * 64}  {url}" for url in others)]
    (tmp_path / "conda-3.6.2.txt").write_text("\n".join(lines) + "\n")
    text = image_text(read_image_facts(image, tmp_path))
    total = len(image.python.packages)
    assert f"    {total - 1} of {total} packages have a recorded sha256" in text
    assert text.count("unlocked") == 1


def test_lines_fit_a_terminal(images: dict[str, Image], project: Project) -> None:
    """URLs and digests are not broken, so that they can be copied."""
    for image in images.values():
        long = [line for line in _text(image, project).splitlines() if len(line) > WIDTH]
        assert [line for line in long if " " in line.strip()] == []
