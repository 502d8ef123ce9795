"""The facts of wheels: read beside the matrix, and what happens where they are not there yet."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.requirements import lock_family
from imgbuild.errors import InputError
from imgbuild.matrix.evidence import read_evidence
from imgbuild.matrix.gpus import gpu_support
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.project import Project

Without = Callable[..., dict[str, Image]]


@pytest.fixture
def without(tmp_path: Path, project: Project) -> Without:
    """Return how to get the images of a matrix whose evidence lacks wheels, by their names."""

    def images(*files: str) -> dict[str, Image]:
        document = json.loads(project.evidence.read_text("utf-8"))
        wheels = document["wheels"]
        document["wheels"] = {k: v for k, v in wheels.items() if not v["file"].startswith(files)}
        assert len(document["wheels"]) < len(wheels), "the evidence has no such wheel"
        own = Project(tmp_path)
        own.files.parent.mkdir()
        own.files.symlink_to(project.files)
        own.matrix.write_bytes(project.matrix.read_bytes())
        own.evidence.write_text(json.dumps(document), "utf-8")
        return {image.name: image for image in all_images(load_matrix(own.matrix))}

    return images


def test_every_image_has_the_facts_of_its_wheel(images: dict[str, Image]) -> None:
    for image in images.values():
        assert image.wheel.version == image.tensorflow
        assert image.python.wheel_tag in image.wheel.pythons
        assert bool(image.cuda) == bool(image.wheel.cuda) == bool(image.wheel.native)


def test_a_row_whose_wheel_was_not_read_can_be_locked_and_not_rendered(
    without: Without, project: Project
) -> None:
    images = without("tensorflow_gpu-2.2.0")
    image = images["tf-2.2-gpu-ubuntu"]
    assert image.lock_name in lock_family(image.matrix).names
    for use in (lambda: render_dockerfile(image, project.templates), lambda: gpu_support(image)):
        with pytest.raises(InputError, match=r"tensorflow-gpu 2\.2\.0 .*audit --write"):
            use()
    assert render_dockerfile(images["tf-2.2-cpu-ubuntu"], project.templates)


def test_the_compiler_of_a_wheel_is_that_of_its_python(without: Without) -> None:
    """Wheels of one release may differ: 1.14 for Python 3.7 was built by another compiler."""
    images = without("tensorflow-1.14.0-cp36")
    evidence = images["tf-1.14-cpu-debian"].matrix.evidence
    assert evidence.wheel("tensorflow", "1.14.0", "cp36") is None
    assert evidence.pythons("tensorflow", "1.14.0") == ()


def test_no_evidence_is_none_of_any_wheel(tmp_path: Path) -> None:
    assert read_evidence(tmp_path / "evidence.json").facts == {}
    assert read_evidence(tmp_path / "a file" / "evidence.json").pythons("tensorflow", "2.2.0") == ()


@pytest.mark.parametrize(
    ("listed", "native", "ptx"),
    [
        (("sm_35", "compute_70"), ("3.5", "7.0"), ("7.0",)),
        (("sm_90", "compute_120"), ("9.0", "12.0"), ("12.0",)),
        ((), (), ()),
    ],
)
def test_capabilities(
    images: dict[str, Image], listed: tuple[str, ...], native: tuple[str, ...], ptx: tuple[str, ...]
) -> None:
    wheel = images["tf-2.3-gpu-ubuntu"].wheel.model_copy(update={"capabilities": listed})
    assert (wheel.native, wheel.ptx) == (native, ptx)
