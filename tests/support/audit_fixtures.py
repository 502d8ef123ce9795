"""Needs of two images, the facts of their wheels, and an index that offers files."""

import pytest

from imgbuild.maintain.audit import list_artifacts
from imgbuild.maintain.compare import Artifact
from imgbuild.matrix.evidence import WheelFacts
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from imgbuild.net.http import HttpClient, RetryPolicy
from support.faulty_server import FaultyServer, Reply


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
    return HttpClient(policy=RetryPolicy(attempts=1, first_wait=0.0), seconds=(1.0, 2.0))


@pytest.fixture
def gpu_artifact(images: dict[str, Image]) -> Artifact:
    return list_artifacts([images["tf-2.2-gpu-ubuntu"]])[0]


@pytest.fixture
def cpu_artifact(images: dict[str, Image]) -> Artifact:
    return list_artifacts([images["tf-2.2-cpu-debian"], images["tf-2.2-cpu-debian-intelmpi"]])[0]


@pytest.fixture
def gpu_facts(gpu_artifact: Artifact) -> WheelFacts:
    return gpu_artifact.images[0].wheel


@pytest.fixture
def cpu_facts(cpu_artifact: Artifact) -> WheelFacts:
    return cpu_artifact.images[0].wheel
