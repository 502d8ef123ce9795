"""Start containers of images, to run suites in them and to read their contents.

Suites start more containers and networks. All of them have one label per image. With the
label, imgbuild removes them at the end, or in the next run if a run was killed.
"""

import io
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from packaging.version import Version
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from imgbuild.core.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.core.files import sha256, work_folder
from imgbuild.core.process import TIMED_OUT, run
from imgbuild.core.user_folders import state_dir
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import DEFAULT_HOST
from imgbuild.engine.types import AMD64
from imgbuild.matrix.model import Variant

#: The label of all containers and networks in test runs; suites copy its value.
CONTAINER_LABEL = "imgbuild.test-of"
#: Bytes of /dev/shm. NCCL shares data between ranks there, and the engine's 64 MB are too small.
SHARED_MEMORY = 1 << 30
#: The first TensorFlow that can be imported without the driver. Source: DT_NEEDED in the wheels.
WITHOUT_DRIVER = Version("1.14")
DRIVER_LIBRARY = "libcuda.so.1"
DRIVER_VERSION = Path("/proc/driver/nvidia/version")
#: The last folder of LD_LIBRARY_PATH in GPU images, where drivers are mounted.
DRIVER_FOLDER = "usr/local/nvidia/lib64"
#: The program that reads the contents of an image, and its time limit in seconds. It takes 0.3 s;
#: the limit allows for a busy machine.
PROGRAM, PROGRAM_SECONDS = Path(__file__).with_name("image_program.py"), 120
_PYTHON = 'exec "$(command -v python || command -v python3)" -c "$1"'
#: Keeps a container running until it is removed.
_SLEEP = ("sleep", "infinity")
#: The version texts of each MPI: "mpirun (Open MPI) 4.1.4"; "Intel(R) MPI Library for Linux* OS,
#: Version 2018 Update 3 Build …" before 2019, "… Version 2021.8 Build …" since.
_MPIRUN = {
    "openmpi": re.compile(r"\(Open MPI\) ([\d.]+)()"),
    "intelmpi": re.compile(r"Intel.*Version ([\d.]+)(?: Update (\d+))?"),
    "mpich": re.compile(r"HYDRA[^:]*:\s+Version:\s+([\d.]+)()"),
}
#: Number of characters of mpirun's output to search: the version is in the first lines.
_MPIRUN_LENGTH = 2000
NOTHING = "nothing"
_Answer = TypeVar("_Answer")

#: A function that writes the driver's stub library ``libcuda.so.1`` into an empty folder.
ExportStub = Callable[[Path], None]


def _no_stub(_: Path) -> None:
    raise CheckFailedError("the image's builder is not known")


@dataclass(frozen=True)
class TestTarget:
    """One image under test.

    ``name`` is its name in reports: the name in the matrix, or the tag of an extended image.
    ``reference`` is the reference that the user gave. ``expected`` are the facts that the suites
    read with ``--expect``. ``export_stub`` writes the driver's stub for an image that this machine
    built.
    """

    __test__ = False  # the name begins with Test, but pytest must not collect it

    name: str
    image_id: str
    reference: str
    variant: Variant
    expected: Mapping[str, Any]
    export_stub: ExportStub = _no_stub

    @property
    def platform(self) -> str:
        """Its platform; only the facts about images for another than linux/amd64 name theirs."""
        return str(self.expected.get("platform", AMD64))

    @property
    def needs_driver(self) -> bool:
        """Whether its TensorFlow can only be imported with an NVIDIA driver."""
        return self.variant == "gpu" and Version(self.expected["tensorflow"]) < WITHOUT_DRIVER


@dataclass(frozen=True)
class StartedContainer:
    """A running container.

    ``no_gpu`` is the reason if a GPU image runs without a GPU. If ``offered`` is true, the engine
    offers GPUs, and the image must see them. ``emulated`` is true if the image is for another
    platform than the engine's.
    """

    id: str
    no_gpu: str | None = None
    offered: bool = False
    emulated: bool = False


def make_label(name: str) -> str:
    """Return the label's value for one image, this machine and this state folder.

    The locks that separate two runs of one image are in the state folder. Therefore each machine
    and state folder has its own value, even on a shared engine.
    """
    return f"{name}@{machine_digest(state_dir())}"


def machine_digest(state: Path) -> str:
    """Return a short digest of this machine and state folder."""
    return sha256(f"{os.uname().nodename}\0{state}".encode())[:12]


def remove_leftovers(names: Iterable[str], engine: Engine) -> None:
    """Remove leftover containers and networks of test runs; the images' locks must be held."""
    values = {make_label(name) for name in names}
    for container in engine.containers(CONTAINER_LABEL):
        if container.labels.get(CONTAINER_LABEL) in values:
            engine.remove_container(container.id)
    for network in engine.networks(CONTAINER_LABEL):  # only possible without their containers
        if network.labels.get(CONTAINER_LABEL) in values:
            engine.remove_network(network.id)


@contextmanager
def suite_container(
    target: TestTarget, engine: Engine, log: Callable[[str], None]
) -> Iterator[StartedContainer]:
    """Start a sleeping container of the image; finally remove it and all leftovers of suites.

    MachineError: the engine cannot start it, even without GPUs.
    """
    try:
        started = _start_container(target, engine)
        if started.no_gpu and target.needs_driver:
            try:
                _copy_stub(engine, started.id, target.export_stub)
            except (ImgbuildError, OSError) as error:
                log(f"the stub of the NVIDIA driver cannot be added to the container: {error}")
        yield started
    finally:
        remove_leftovers([target.name], engine)


def _start_container(target: TestTarget, engine: Engine) -> StartedContainer:
    """Start a container, with GPUs for a GPU image; without them, keep the reason."""
    labels = {CONTAINER_LABEL: make_label(target.name)}
    start = partial(engine.start, target.image_id, command=_SLEEP, labels=labels)
    emulated = engine.version().platform != target.platform
    if target.variant == "cpu":
        return StartedContainer(start(), emulated=emulated)
    refusal, gpus = "the engine offers none to containers", engine.version().gpus
    if gpus:
        try:
            container = start(gpus=gpus, shm_bytes=SHARED_MEMORY)
            return StartedContainer(container, offered=True)
        except ImgbuildError as error:
            refusal = " ".join(str(error).split())
    return StartedContainer(start(), refusal, offered=gpus is not None, emulated=emulated)


def gpu_fingerprint(engine: Engine) -> str | None:
    """Return a digest of this machine's driver and GPUs; None if the engine offers no GPUs.

    The result is empty if they cannot be queried, for example because the engine is remote.
    """
    if engine.version().gpus is None:
        return None
    host = engine.host or DEFAULT_HOST
    if not host.startswith("unix://") or not DRIVER_VERSION.is_file():
        return ""
    listed = run(["nvidia-smi", "-L"], timeout=PROGRAM_SECONDS)  # also lists MIG devices
    if not listed.ok:
        return ""
    text = f"{DRIVER_VERSION.read_text()}{listed.output}"
    return sha256(text.encode())


def _copy_stub(engine: Engine, container: str, export: ExportStub) -> None:
    """Copy NVIDIA's stub of the driver into the container.

    TensorFlow 1.10 to 1.13 for GPUs cannot be imported without libcuda.so.1. Images do not contain
    the stub, because it would hide the driver. It is not mounted, because the engine may be remote.
    """
    buffer = io.BytesIO()
    with work_folder("stub") as folder, tarfile.open(fileobj=buffer, mode="w") as archive:
        export(folder)
        library = (folder / DRIVER_LIBRARY).read_bytes()
        member = tarfile.TarInfo(f"{DRIVER_FOLDER}/{DRIVER_LIBRARY}")
        member.size, member.mode = len(library), 0o644
        archive.addfile(member, io.BytesIO(library))
    engine.copy_in(container, buffer.getvalue(), "/")


def _two_numbers(glibc: str) -> str:
    """Return the first two numbers of a glibc version; old releases have three."""
    return ".".join(glibc.split(".")[:2])


# An image can print anything, so validate each part of its answer. Some parts are later used in a
# Dockerfile, a file name or an option of a program.
_PackageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
_PackageVersion = Annotated[str, Field(pattern=r"^[!-~]{1,200}$")]
_Release = Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,5}$")]
_Python = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){2}((a|b|rc)[0-9]{1,3})?$")]
_Glibc = Annotated[
    str, Field(pattern=r"^([0-9]{1,3}(\.[0-9]{1,3}){1,2})?$"), AfterValidator(_two_numbers)
]
# Source: os-release(5), "ID" and "VERSION_ID".
_OsId = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,63})?$")]
_Text = Annotated[str, Field(max_length=100_000)]


@dataclass(frozen=True)
class ImageContents:
    """The contents of a running image; see :mod:`imgbuild.suites.image_program`."""

    distributions: Annotated[
        tuple[tuple[_PackageName, _PackageVersion], ...], Field(max_length=1000)
    ]
    built_with_cuda: bool | None
    kernels: bool | None
    python: _Python
    mpirun: _Text
    cuda: Annotated[tuple[_Release, ...], Field(max_length=1000)]
    os: tuple[_OsId, _OsId]
    packages: Annotated[Mapping[_PackageName, _PackageVersion], Field(max_length=20_000)] = field(
        default_factory=dict
    )
    glibc: _Glibc = ""

    @property
    def tensorflow_versions(self) -> tuple[str, ...]:
        return tuple(version for name, version in self.distributions if name != "horovod")

    @property
    def tensorflow(self) -> str:
        """The version of the installed TensorFlow; all versions if there are several."""
        return join_versions(self.tensorflow_versions)

    @property
    def mpi(self) -> tuple[str, str]:
        """Flavour and version of the MPI that ``mpirun`` belongs to."""
        for flavour, words in _MPIRUN.items():
            if match := words.search(self.mpirun[:_MPIRUN_LENGTH]):
                return flavour, ".".join(filter(None, match.groups()))
        return NOTHING, ""


def join_versions(values: Iterable[str]) -> str:
    """Join versions with "and"; return ``nothing`` if there are none."""
    return " and ".join(values) or NOTHING


def read_contents(name: str, image_id: str, engine: Engine) -> ImageContents:
    return ask_image(PROGRAM, ImageContents, name, image_id, engine)


def ask_image(
    program: Path, kind: type[_Answer], name: str, image_id: str, engine: Engine
) -> _Answer:
    """Run a program with the image's Python in a temporary container; return its parsed output.

    The image's lock must be held, because the container has the label of the image's test runs. If
    imgbuild is killed, the next test run therefore removes the container.

    CheckFailedError: the image cannot run the program, or its output is invalid.
    MachineError: the engine cannot start the container, or there is no docker client.
    """
    require_docker_client()
    # Use no network. Some engines add the driver to every container, so disable that.
    container = engine.start(
        image_id,
        command=_SLEEP,
        labels={CONTAINER_LABEL: make_label(name)},
        environment={"NVIDIA_VISIBLE_DEVICES": "void"},
        network="none",
    )
    text = program.read_text(encoding="utf-8")
    try:
        printed = docker_exec(engine.host, container, ["sh", "-c", _PYTHON, "sh", text])
    finally:
        engine.remove_container(container)
    try:
        return TypeAdapter(kind).validate_json(printed)
    except ValidationError as error:
        fault = error.errors()[0]
    if not fault["loc"]:  # not JSON, or not an object
        raise CheckFailedError(
            f"The contents of {name} ({image_id}) cannot be read; the program in it printed "
            f"{' '.join(printed.split())[:200]!r}."
        )
    part, value = fault["loc"][0], str(fault["input"])[:80]
    raise CheckFailedError(
        f"The contents of {name} ({image_id}) cannot be read: {value!r} is not valid for {part}. "
        "Correct the image, or use another one."
    )


def docker_exec(host: str | None, container: str, command: Sequence[str]) -> str:
    """Run a command in a container with the docker client, as suites do; return its output."""
    environment = dict(os.environ)
    if host:
        environment["DOCKER_HOST"] = host
    ran = run(["docker", "exec", container, *command], timeout=PROGRAM_SECONDS, env=environment)
    if ran.code == TIMED_OUT:
        raise CheckFailedError(
            f"Reading the contents of the image took more than {PROGRAM_SECONDS} s. Is the engine "
            "overloaded? Try again."
        )
    if ran.code:
        last = " ".join(ran.errors.split()[-40:])
        raise CheckFailedError(
            f"The image cannot run the program that reads its contents (exit code {ran.code}): "
            f"{last}"
        )
    return ran.output


def require_docker_client() -> None:
    """Raise MachineError if there is no docker client on PATH, which testinfra needs."""
    if shutil.which("docker") is None:
        raise MachineError(
            "There is no docker client on PATH, but the suites run their commands with it. Install "
            "one (Debian: apt-get install docker-cli; Ubuntu: docker.io), or build with --no-test."
        )
