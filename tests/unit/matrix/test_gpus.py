"""Which GPUs an image serves: machine code, PTX, or nothing."""

from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.matrix import gpus
from imgbuild.matrix.gpus import (
    GENERATIONS,
    KernelSupport,
    gpu_capability,
    gpu_facts,
    gpu_support,
    kernel_support,
    unsupported_gpus,
)
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ("6.0", KernelSupport.NOTHING),  # older than all code
        ("6.1", KernelSupport.NATIVE),
        ("6.2", KernelSupport.NATIVE),  # machine code runs on newer minor numbers
        ("7.0", KernelSupport.PTX),  # of another major number
        ("7.5", KernelSupport.PTX),
        ("8.0", KernelSupport.NOTHING),  # PTX there is, but the CUDA release does not know the GPU
    ],
)
def test_the_edges(
    matrix: Matrix, images: dict[str, Image], capability: str, expected: KernelSupport
) -> None:
    wheel = images["tf-2.2-gpu-ubuntu"].wheel.model_copy(update={"capabilities": ("compute_61",)})
    assert kernel_support(capability, wheel, matrix.cuda["10.1"]) is expected
    machine_code = wheel.model_copy(update={"capabilities": ("sm_61",)})
    without_ptx = KernelSupport.NOTHING if expected is KernelSupport.PTX else expected
    assert kernel_support(capability, machine_code, matrix.cuda["10.1"]) is without_ptx


def test_the_gpus_that_are_too_new_for_an_image(images: dict[str, Image]) -> None:
    too_new = "Blackwell and newer GPUs are not supported by CUDA 11.8:"
    assert str(unsupported_gpus(images["tf-2.12-gpu-debian"])).startswith(too_new)
    without_code = "Blackwell and newer GPUs are not supported by TensorFlow 2.20.0:"
    assert str(unsupported_gpus(images["tf-2.20-gpu-debian"])).startswith(without_code)
    assert str(unsupported_gpus(images["tf-2.21-gpu-debian"])).startswith("Blackwell: PTX only.")
    assert unsupported_gpus(images["tf-2.1-cpu-ubuntu"]) is None
    assert not gpu_support(images["tf-2.1-cpu-ubuntu"])


@pytest.mark.parametrize(
    ("model", "capability"),
    [
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("tesla v100", "7.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("RTX2080Ti", "7.5"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
        ("3090", "8.6"),  # a part, of models of one capability
        ("1080 ti", "6.1"),
    ],
)
def test_the_capability_of_a_model(model: str, capability: str) -> None:
    assert gpu_capability(model) == capability


def test_the_table_of_models() -> None:
    """Every line is read, in order; each model, and the first example, has its capability."""
    numbers = [tuple(map(int, g.capability.split("."))) for g in GENERATIONS]
    assert numbers == sorted({*numbers})
    lines = Path(gpus.__file__).with_name("gpu_models.txt").read_text().splitlines()
    assert len(GENERATIONS) == sum(not line.startswith("#") for line in lines) == 15
    for generation in GENERATIONS:
        first, *_ = generation.examples.split(", ")
        for model in (first, *generation.models.split(", ")):
            assert gpu_capability(model) == generation.capability, model


@pytest.mark.parametrize(
    ("model", "nearest"),
    [("Tesla V1000", "Tesla V100, Tesla V100S, "), ("RTX 6000", "RTX 6000 Ada"), ("309", "")],
)
def test_a_name_of_no_model_or_of_two_is_not_guessed(model: str, nearest: str) -> None:
    with pytest.raises(InputError, match=f"Most similar: .*{nearest}"):
        gpu_capability(model)


@pytest.mark.parametrize(
    ("name", "capability", "instead"),
    [
        ("tf-1.15-gpu-ubuntu", "8.0", "tf-2.5-gpu-debian"),
        ("tf-2.15-gpu-debian", "3.7", "tf-2.14-gpu-debian"),
        ("tf-2.3-gpu-ubuntu", "5.0", "tf-2.2-gpu-ubuntu"),  # 2.5 has code for it, too
        ("tf-2.19-gpu-debian", "12.0", "tf-2.21-gpu-debian"),
    ],
)
def test_the_nearest_image_for_a_gpu_is_named(
    images: dict[str, Image], name: str, capability: str, instead: str
) -> None:
    assert _instead(images[name])[capability] == instead


def test_an_image_that_is_named_for_a_gpu_supports_it(images: dict[str, Image]) -> None:
    support = {
        image.name: {found.capability: kind for found, kind in gpu_support(image)}
        for image in images.values()
    }
    for image in images.values():
        named = _instead(image)
        for capability, kind in support[image.name].items():
            lacks = kind is KernelSupport.NOTHING
            assert lacks or capability not in named
            if lacks and capability in named:
                assert support[named[capability]][capability] is not KernelSupport.NOTHING
            elif lacks:
                others = {name: kinds[capability] for name, kinds in support.items() if kinds}
                assert {*others.values()} == {KernelSupport.NOTHING}, "no image supports it"


def _instead(image: Image) -> dict[str, str]:
    instead = gpu_facts(image, image.cuda)["instead"] if image.cuda else {}
    assert isinstance(instead, dict)
    return instead
