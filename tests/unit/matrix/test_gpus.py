"""Which GPUs an image serves: machine code, PTX, or nothing."""

from pathlib import Path

import pytest

from imgbuild.errors import InputError
from imgbuild.matrix import gpus
from imgbuild.matrix.gpus import (
    GENERATIONS,
    KernelSupport,
    driver_cuda,
    gpu_capability,
    gpu_support,
    kernel_support,
    unsupported_gpus,
)
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import GpuWheel, Matrix


def _services(image: Image) -> dict[str, KernelSupport]:
    return {generation.capability: support for generation, support in gpu_support(image)}


def test_capabilities_are_in_order_and_once() -> None:
    numbers = [tuple(map(int, g.capability.split("."))) for g in GENERATIONS]
    assert numbers == sorted({*numbers})


@pytest.mark.parametrize(
    ("name", "native", "ptx"),
    [
        ("tf-1.10-gpu-ubuntu", ["3.5", "3.7", "5.2", "6.0", "6.1", "7.0", "7.5"], ["5.0"]),
        ("tf-2.1-gpu-ubuntu", ["3.5", "3.7", "5.2", "6.0", "6.1", "7.0", "7.5"], ["5.0"]),
        ("tf-2.3-gpu-ubuntu", ["3.5", "3.7", "5.2", "6.0", "6.1", "7.0", "7.5"], []),
        (
            "tf-2.12-gpu-debian",
            [
                *("3.5", "3.7", "5.0", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9"),
            ],
            ["9.0"],
        ),
        (
            "tf-2.15-gpu-debian",
            ["5.0", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9"],
            ["9.0"],
        ),
    ],
)
def test_what_a_wheel_has(
    images: dict[str, Image], name: str, native: list[str], ptx: list[str]
) -> None:
    services = _services(images[name])
    assert [c for c, s in services.items() if s is KernelSupport.NATIVE] == native
    assert [c for c, s in services.items() if s is KernelSupport.PTX] == ptx


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
def test_the_edges(matrix: Matrix, capability: str, expected: KernelSupport) -> None:
    wheel = GpuWheel(cuda="10.1", cudnn="7.6.4", native=("6.1",), ptx=("6.1",))
    assert kernel_support(capability, wheel, matrix.cuda["10.1"]) is expected


def test_ampere_and_newer_are_plainly_unsupported_gpus(images: dict[str, Image]) -> None:
    sentence = unsupported_gpus(images["tf-2.1-gpu-ubuntu"]) or ""
    assert sentence.startswith("Ampere and newer GPUs are not served by CUDA 10: ")
    assert "by CUDA 9:" in (unsupported_gpus(images["tf-1.12-gpu-ubuntu"]) or "")


def test_from_cuda_11_on_a_driver_of_the_first_minor_release_is_enough(
    images: dict[str, Image],
) -> None:
    assert driver_cuda(images["tf-2.12-gpu-debian"]) == "11.0"
    assert driver_cuda(images["tf-2.15-gpu-debian"]) == "12.0"
    assert driver_cuda(images["tf-2.3-gpu-ubuntu"]) == "10.1"
    assert driver_cuda(images["tf-2.3-cpu-ubuntu"]) == ""
    blackwell = unsupported_gpus(images["tf-2.12-gpu-debian"]) or ""
    assert blackwell.startswith("Blackwell and newer GPUs are not served by CUDA 11: ")


def test_a_cpu_image_serves_no_gpu(images: dict[str, Image]) -> None:
    assert gpu_support(images["tf-2.1-cpu-ubuntu"]) == ()
    assert unsupported_gpus(images["tf-2.1-cpu-ubuntu"]) is None


@pytest.mark.parametrize(
    ("model", "capability"),
    [
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("tesla v100", "7.0"),
        ("NVIDIA A100-SXM4-40GB", "8.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("RTX2080Ti", "7.5"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
        ("GeForce GTX TITAN X", "5.2"),
        ("GeForce GTX 1060 6GB", "6.1"),
    ],
)
def test_the_capability_of_a_model(model: str, capability: str) -> None:
    assert gpu_capability(model) == capability


def test_the_table_of_models() -> None:
    """Every line is read; each model, and the first example, has its line's capability."""
    lines = Path(gpus.__file__).with_name("gpu_models.txt").read_text().splitlines()
    assert len(GENERATIONS) == sum(not line.startswith("#") for line in lines) == 15
    for generation in GENERATIONS:
        first, *_ = generation.examples.split(", ")
        for model in (first, *generation.models.split(", ")):
            assert gpu_capability(model) == generation.capability, model


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"Most similar: Tesla V100, Tesla V100S, .* such as 7\.0"):
        gpu_capability("Tesla V1000")


def test_a_name_of_two_models_is_not_guessed() -> None:
    with pytest.raises(InputError, match=r"Most similar: .*RTX 6000 Ada"):
        gpu_capability("RTX 6000")
