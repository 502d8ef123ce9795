"""Pages of an index on a server, and facts that agree with the matrix."""

from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.audit.facts import WheelFacts, WheelNeed, pins_of
from imgbuild.http import HttpClient, RetryPolicy
from imgbuild.matrix.images import Image


@pytest.fixture
def client() -> HttpClient:
    return HttpClient(policy=RetryPolicy(attempts=1), seconds=(1.0, 2.0))


@pytest.fixture
def gpu_need(images: dict[str, Image]) -> WheelNeed:
    return pins_of([images["tf-2.2-gpu-ubuntu"]], Path()).wheels[0]


@pytest.fixture
def cpu_need(images: dict[str, Image]) -> WheelNeed:
    return pins_of([images["tf-2.2-cpu-debian"], images["tf-2.2-cpu-ubuntu"]], Path()).wheels[0]


@pytest.fixture
def gpu_facts() -> WheelFacts:
    return WheelFacts(
        sha256="ab" * 32,
        file="tensorflow_gpu-2.2.0-cp36-cp36m-manylinux2010_x86_64.whl",
        size=516_000_000,
        name="tensorflow-gpu",
        version="2.2.0",
        tags=("cp36-cp36m-manylinux2010_x86_64",),
        libraries=("libcublas.so.10", "libcuda.so.1", "libcudart.so.10.1", "libcudnn.so.7"),
        loading="opened",
        cuda_build=True,
        capabilities=(),
        compiler="7.3.1",
        cxx11_abi=0,
        glibc="2.12",
    )


@pytest.fixture
def cpu_facts(gpu_facts: WheelFacts) -> WheelFacts:
    return replace(
        gpu_facts,
        sha256="ef" * 32,
        file="tensorflow_cpu-2.2.0-cp36-cp36m-manylinux2010_x86_64.whl",
        name="tensorflow-cpu",
        libraries=(),
        loading="none",
        cuda_build=False,
    )
