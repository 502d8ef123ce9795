"""Start the container that the suites of one image run in, and remove all that they started.

Suites start further containers and networks. All that belongs to the test of one image carries one
label, by which it is removed: at the end, and, where a run was killed, by the next run.
"""

import hashlib
import io
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from imgbuild.engine.client import Engine
from imgbuild.engine.types import RunOptions
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.files import work_folder
from imgbuild.matrix.model import Variant
from imgbuild.project import state_dir

#: Marks the containers and networks of test runs; the in-image suites hand the value on.
CONTAINER_LABEL = "imgbuild.test-of"
#: NCCL passes what ranks share through /dev/shm: the engine's 64 MB are soon full.
SHARED_MEMORY = 1 << 30
#: The first TensorFlow that is imported without the driver. Read out of the wheels' DT_NEEDED.
WITHOUT_DRIVER = Version("1.14")
DRIVER_LIBRARY = "libcuda.so.1"
#: The last folder of LD_LIBRARY_PATH in GPU images, where drivers are mounted.
DRIVER_FOLDER = "usr/local/nvidia/lib64"

#: Writes the stub of the driver's library, as ``libcuda.so.1``, into an empty folder.
ExportStub = Callable[[Path], None]


def _no_stub(_: Path) -> None:
    raise CheckFailedError("the image's builder is not known")


@dataclass(frozen=True)
class TestTarget:
    """One image under test. ``expected`` is what the suites read with ``--expect``.

    ``name`` is the image's in reports: that in the matrix, or the reference of an external image.
    ``reference`` is how it was found. ``unspecified`` are facts that ``--expect`` leaves out.
    ``export_stub`` makes the driver's stub, for an image that was built here.
    """

    __test__ = False  # the name begins with Test, but pytest must not collect it

    name: str
    image_id: str
    reference: str
    variant: Variant
    expected: Mapping[str, Any]
    unspecified: tuple[str, ...] = ()
    export_stub: ExportStub = _no_stub

    @property
    def folder(self) -> str:
        """The name as that of a folder."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name)

    @property
    def needs_driver(self) -> bool:
        """Whether its TensorFlow can be imported only where there is a driver."""
        return self.variant == "gpu" and Version(self.expected["tensorflow"]) < WITHOUT_DRIVER


@dataclass(frozen=True)
class StartedContainer:
    """A running container. ``no_gpu`` is why it has no GPU, ``offered`` whether there are any."""

    id: str
    no_gpu: str | None = None
    offered: bool = False


def label_of(name: str) -> str:
    """Return the label's value for one image of this user on this machine.

    Whoever shares the engine from elsewhere, or with another state folder, has another value: the
    locks that keep two runs of one image apart lie in the state folder.
    """
    return f"{name}@{place_of(state_dir())}"


def place_of(state: Path) -> str:
    """Return a short digest of this machine and state folder."""
    return hashlib.sha256(f"{os.uname().nodename}\0{state}".encode()).hexdigest()[:12]


def remove_leftovers(names: Iterable[str], engine: Engine) -> None:
    """Remove what test runs of these images left; the images' locks must be held."""
    values = {label_of(name) for name in names}
    for container in engine.containers(CONTAINER_LABEL):
        if container.labels.get(CONTAINER_LABEL) in values:
            engine.remove_container(container.id)
    for network in engine.networks(CONTAINER_LABEL):
        if network.labels.get(CONTAINER_LABEL) in values:
            engine.remove_network(network.id)


@contextmanager
def suite_container(
    target: TestTarget, engine: Engine, log: Callable[[str], None]
) -> Iterator[StartedContainer]:
    """Give a sleeping container of the image; at the end remove it and all that suites left.

    Raises:
        MachineError: the engine cannot start it, without GPUs too.

    """
    try:
        started = _start(target, engine)
        if started.no_gpu and target.needs_driver:
            try:
                _copy_stub(engine, started.id, target.export_stub)
            except (ImgbuildError, OSError) as error:
                log(f"no stub of the driver: {error}")
        yield started
    finally:
        remove_leftovers([target.name], engine)


def _start(target: TestTarget, engine: Engine) -> StartedContainer:
    """Start it with GPUs where the image can use them; a refusal is kept as the reason."""
    gpus = engine.version().gpus if target.variant == "gpu" else None
    refusal = None if target.variant == "cpu" else "the engine offers none to containers"
    if gpus:
        try:
            options = RunOptions(gpus=gpus, shm_bytes=SHARED_MEMORY)
            return StartedContainer(_sleeping(target, engine, options), offered=True)
        except ImgbuildError as error:
            refusal = " ".join(str(error).split())
    plain = _sleeping(target, engine, RunOptions())
    return StartedContainer(plain, refusal, offered=gpus is not None)


def _sleeping(target: TestTarget, engine: Engine, options: RunOptions) -> str:
    return engine.start(
        target.image_id,
        command=["sleep", "infinity"],
        labels={CONTAINER_LABEL: label_of(target.name)},
        options=options,
    )


def _copy_stub(engine: Engine, container: str, export: ExportStub) -> None:
    """Copy NVIDIA's stub of the driver into the container.

    TensorFlow 1.10 to 1.13 for GPUs cannot be imported without libcuda.so.1. No image holds it, for
    it would hide the driver. It is not mounted: the engine may be on another machine.
    """
    with work_folder("stub") as folder:
        export(folder)
        library = (folder / DRIVER_LIBRARY).read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(f"{DRIVER_FOLDER}/{DRIVER_LIBRARY}")
        member.size, member.mode = len(library), 0o644
        archive.addfile(member, io.BytesIO(library))
    engine.copy_in(container, buffer.getvalue(), "/")


def require_docker_client() -> None:
    """Check, before anything is built, that testinfra will find a docker client.

    Raises:
        MachineError: there is none on PATH.

    """
    if shutil.which("docker") is None:
        raise MachineError(
            "No docker client on PATH; the suites run their commands through it. Install one "
            "(Debian: apt-get install docker-cli; Ubuntu: docker.io), or build with --no-test."
        )
