"""Needs of two images, facts that agree with the matrix, and an index that offers files."""

import pytest
from faulty_server import FaultyServer, Reply

from imgbuild.audit.audit import needs_of
from imgbuild.audit.compare import Need
from imgbuild.http import HttpClient, RetryPolicy
from imgbuild.matrix.evidence import WheelFacts
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix


@pytest.fixture
def index(server: FaultyServer, matrix: Matrix) -> FaultyServer:
    """Return an index with every Horovod of the matrix: the right sha256 of other files."""
    links = []
    for version, source in matrix.horovod.items():
        file = f"horovod-{version}.tar.gz"
        server.give(f"/{file}", Reply(b"content"))
        links.append(f'href="/{file}#sha256={source.sha256}">{file}')
    server.project("horovod", *links)
    return server


@pytest.fixture
def client() -> HttpClient:
    return HttpClient(policy=RetryPolicy(attempts=1), seconds=(1.0, 2.0))


@pytest.fixture
def gpu_need(images: dict[str, Image]) -> Need:
    return needs_of([images["tf-2.2-gpu-ubuntu"]])[0]


@pytest.fixture
def cpu_need(images: dict[str, Image]) -> Need:
    return needs_of([images["tf-2.2-cpu-debian"], images["tf-2.2-cpu-debian-intelmpi"]])[0]


@pytest.fixture
def gpu_facts() -> WheelFacts:
    return WheelFacts(
        sha256="ab" * 32,
        file="tensorflow_gpu-2.2.0-cp36-cp36m-manylinux2010_x86_64.whl",
        size=516_000_000,
        name="tensorflow-gpu",
        version="2.2.0",
        tags=("cp36-cp36m-manylinux2010_x86_64",),
        pythons=("cp36", "cp37", "cp38"),
        libraries=("libcublas.so.10", "libcuda.so.1", "libcudart.so.10.1", "libcudnn.so.7"),
        loading="opened",
        cuda_build=True,
        cuda="10.1",
        capabilities=("sm_35", "compute_70"),
        compiler="7.3.1",
        cxx11_abi=0,
        glibc="2.12",
    )


@pytest.fixture
def cpu_facts(gpu_facts: WheelFacts, cpu_need: Need) -> WheelFacts:
    changes = {
        "sha256": "ef" * 32,
        "file": f"tensorflow_cpu-{cpu_need.version}-cp36-cp36m-manylinux2010_x86_64.whl",
        "name": "tensorflow-cpu",
        "version": cpu_need.version,
        "libraries": (),
        "loading": "none",
        "cuda_build": False,
        "cuda": "",
        "capabilities": (),
    }
    return gpu_facts.model_copy(update=changes)
