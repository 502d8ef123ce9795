"""Every rule between matrix and wheel fires when it should, and only then."""

from dataclasses import replace
from typing import Any

import pytest

from imgbuild.audit.compare import compare
from imgbuild.audit.facts import WheelFacts, WheelNeed
from imgbuild.dockerfile.lockfile import Lock

pytest_plugins = ("audit_fixtures",)


def _kinds(need: WheelNeed, facts: WheelFacts) -> list[str]:
    return [found.kind for found in compare(need, facts, {})]


def test_a_wheel_that_agrees_has_no_contradiction(
    gpu_need: WheelNeed, gpu_facts: WheelFacts, cpu_need: WheelNeed, cpu_facts: WheelFacts
) -> None:
    assert compare(gpu_need, gpu_facts, {}) == ()
    assert compare(cpu_need, cpu_facts, {}) == ()


CUDA_10_0 = ("libcublas.so.10.0", "libcudart.so.10.0", "libcudnn.so.7")


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"name": "tensorflow"}, ["metadata"]),
        ({"version": "2.2.1"}, ["metadata"]),
        ({"file": "tensorflow_gpu-2.2.0-cp37-cp37m-manylinux2010_x86_64.whl"}, ["python"]),
        ({"tags": ("cp37-cp37m-linux_x86_64",)}, ["python"]),
        ({"file": "tensorflow_gpu-2.2.0-cp36-cp36m-manylinux1_x86_64.whl"}, ["platform"]),
        (
            {"file": "tensorflow_gpu-2.2.0-cp36-cp36m-manylinux_2_35_x86_64.whl"},
            ["glibc", "platform"],
        ),
        ({"glibc": "2.38"}, ["glibc"]),
        ({"compiler": "4.8.5"}, ["compiler"]),
        ({"libraries": ()}, ["gpu"]),
        ({"cuda_build": False}, ["gpu"]),
        ({"libraries": CUDA_10_0}, ["cuda", "cuda"]),
        ({"libraries": ("libcublas.so.11", "libcudart.so.10.1", "libcudnn.so.7")}, ["cuda"] * 2),
        ({"libraries": ("libcudart.so.10.1", "libcudnn.so.8")}, ["cudnn", "cudnn"]),
        ({"libraries": ("libcudart.so.10.1",)}, ["cudnn", "cudnn"]),
        ({"capabilities": ("sm_35", "compute_70")}, ["capabilities", "capabilities"]),
    ],
)
def test_a_gpu_wheel_that_differs_is_named(
    gpu_need: WheelNeed, gpu_facts: WheelFacts, changes: dict[str, Any], kinds: list[str]
) -> None:
    assert _kinds(gpu_need, replace(gpu_facts, **changes)) == kinds


@pytest.mark.parametrize("changes", [{"libraries": ("libcudart.so.10.1",)}, {"cuda_build": True}])
def test_a_cpu_wheel_with_cuda_is_named_once_for_all_images(
    cpu_need: WheelNeed, cpu_facts: WheelFacts, changes: dict[str, Any]
) -> None:
    assert _kinds(cpu_need, replace(cpu_facts, **changes)) == ["cpu"]


def test_a_wheel_that_is_not_the_locked_one(cpu_need: WheelNeed, cpu_facts: WheelFacts) -> None:
    name = cpu_need.images[0].lock_name
    other = Lock("", {"tensorflow-cpu": "2.2.0"}, {"tensorflow-cpu": ("cd" * 32,)})
    right = Lock("", {"tensorflow-cpu": "2.2.0"}, {"tensorflow-cpu": (cpu_facts.sha256,)})
    [found] = compare(cpu_need, cpu_facts, {name: other})
    assert (found.kind, found.place) == ("lock", f"images/locks/{name}")
    assert compare(cpu_need, cpu_facts, {name: right}) == ()


def test_places_are_where_the_pin_is_written(gpu_need: WheelNeed, gpu_facts: WheelFacts) -> None:
    index = gpu_need.images[0].matrix.images
    row = next(i for i, r in enumerate(index) if (r.tensorflow, r.stack) == ("2.2.0", "ubuntu"))
    wrong = compare(gpu_need, replace(gpu_facts, libraries=CUDA_10_0), {})
    assert wrong[0].place == ("images", row, "cuda")
    assert wrong[1].place == ("tensorflow", "2.2.0", "gpu", "cuda")
    assert "libcudart.so.10.0" in wrong[0].evidence
    assert "write 10.0" in wrong[0].change
    [cudnn, _] = compare(gpu_need, replace(gpu_facts, libraries=("libcudart.so.10.1",)), {})
    assert cudnn.place == ("stacks", "ubuntu", "pins", "cudnn")
