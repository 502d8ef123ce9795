"""The values that the Dockerfile templates use, computed from an image. Pure but for its lock."""

import calendar
import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from packaging.version import Version

from imgbuild.dockerfile.conda import conda_packages
from imgbuild.dockerfile.labels import pin_labels
from imgbuild.dockerfile.lockfile import PackageLayer, lock_text, package_layers
from imgbuild.dockerfile.sources import NamedSource, named_sources
from imgbuild.errors import InputError
from imgbuild.files import sha256
from imgbuild.matrix.components import AptCuda, IndexCuda
from imgbuild.matrix.evidence import WheelFacts
from imgbuild.matrix.gpus import driver_cuda
from imgbuild.matrix.images import Image, minor_of
from imgbuild.matrix.model import Uv
from imgbuild.matrix.rules import admits

#: Where the interpreter and the packages live in every image.
PREFIX = "/opt/python"

#: Open MPI refuses root unless both are set, and its shared-memory transport prints
#: "Read -1, expected" where the container may not use process_vm_readv. As ENV, since
#: `docker exec` and Kubernetes bypass an entry point. Source: Open MPI FAQ, "running as root";
#: open-mpi/ompi issue 4948.
MPI_ENVIRONMENT: Mapping[str, tuple[tuple[str, str], ...]] = {
    "openmpi": (
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ),
    # I_MPI_ROOT is what mpivars.sh sets, for shells that read no profile. mpiexec 2021.8 waits
    # for ever where a node is lost, so what starts the nodes ends it (images/files). Source:
    # Intel MPI Developer Reference, "Hydra Environment Variables".
    "intelmpi": (
        ("I_MPI_ROOT", "{root}"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/usr/local/bin/mpiexec-ssh"),
    ),
}
#: From 2019 on Intel MPI sends through libfabric, whose providers it has in a separate folder;
#: TCP is what every network has. Source: its env/vars.sh; libfabric's fi_provider(7).
LIBFABRIC = Version("2019")
LIBFABRIC_ENVIRONMENT = (
    ("FI_PROVIDER_PATH", "{root}/lib/libfabric/prov"),
    ("FI_PROVIDER", "tcp"),
)
#: Where an MPI of the package index lies.
MPI_ROOT = "/opt/impi"
#: What an image starts as its first process: it forwards signals and collects orphans. From the
#: lock, since Ubuntu 16.04 and 18.04 have no such package. It ends with 2 where there is no such
#: command; env, which as-user ends as, becomes the command, or ends with 127 (126: it cannot be
#: run), as shells do.
INIT = (f"{PREFIX}/bin/dumb-init", "--", "/usr/local/bin/as-user")

#: What is installed, as constraints: pip and uv keep to the file that their variables name.
CONSTRAINTS = f"{PREFIX}/constraints.txt"

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: Where `pip install --user` puts scripts of the users that an image has; as-user adds others'.
USER_PATH = ("/root/.local/bin", "/home/mpiuser/.local/bin")
#: Distributions with TensorFlow's files that no image provides: constraints keep them out.
OTHER_TENSORFLOWS = (
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-rocm",
    "intel-tensorflow",
    "intel-tensorflow-avx512",
    "tf-nightly",
    "tf-nightly-cpu",
    "tf-nightly-gpu",
)

#: What NVIDIA's container runtime reads: all devices, the libraries for computing, and the CUDA
#: release that a driver must know for the container to start. The folders are those that other
#: runtimes mount the driver at. Source: NVIDIA container toolkit, "Environment variables".
GPU_ENVIRONMENT = (
    ("LD_LIBRARY_PATH", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"),
    ("NVIDIA_VISIBLE_DEVICES", "all"),
    ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
    ("NVIDIA_REQUIRE_CUDA", "cuda>={driver}"),
)
#: Room for what the driver compiles from PTX and keeps: its default holds no whole TensorFlow.
#: Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; 4 GiB is the most.
PTX_CACHE = (("CUDA_CACHE_MAXSIZE", "4294967296"),)
#: The upstreams of the gpu variant's packages, in the order of the templates.
NVIDIA_UPSTREAMS = ("nvidia-cuda", "nvidia-machine-learning")


class Compilers(TypedDict):
    """The compilers of Horovod; ``header`` says whether they need gcc 4's std::function."""

    cc: str
    cxx: str
    header: bool


class Environment(TypedDict):
    """Where programs are, and what the image's processes get."""

    mpi_root: str
    mpi_path: str
    path: str
    init: str
    environment: Sequence[tuple[str, str]]


class Downloads(TypedDict):
    """The files that a build downloads, by what they are for, and the conda packages by URL."""

    downloads: Mapping[str, NamedSource]
    python_source: NamedSource | None
    miniconda: NamedSource | None
    mpi_source: NamedSource | None
    conda_packages: Sequence[tuple[str, str | None]]
    uv: Uv


class SystemPackages(TypedDict):
    """Packages of the distribution, by the stage that installs them."""

    os_packages: Sequence[str]
    python_packages: Sequence[str]
    mpi_packages: Sequence[str]
    mpi_build_packages: Sequence[str]
    mpi_without: Sequence[str]
    compiler_packages: Sequence[str]
    cpython_packages: Sequence[str]


class Repository(TypedDict):
    """One of NVIDIA's: its upstream, address and keyring."""

    name: str
    url: str
    keyring: str


class CudaValues(TypedDict):
    """CUDA of NVIDIA's repositories, or of the index; the templates ask which by ``image``."""

    cuda_version: NotRequired[str]
    cuda_packages: NotRequired[Sequence[str]]
    cuda_build_packages: NotRequired[Sequence[str]]
    nvidia_repositories: NotRequired[Sequence[Repository]]
    cuda_layer: str | None
    cuda_compilers: NotRequired[Sequence[str]]
    capabilities: NotRequired[str]


class Variables(Environment, Downloads, SystemPackages, CudaValues):
    """Everything that a template may name."""

    image: Image
    wheel: WheelFacts
    epoch: int
    prefix: str
    python_minor: str
    site_packages: str
    labels: Sequence[str]
    compilers: Compilers
    own_programs: Sequence[str]
    other_tensorflows: Sequence[str]
    uv_cache: str
    package_layers: Sequence[PackageLayer]
    other_packages: PackageLayer
    compiler_words: str


def epoch_seconds(image: Image) -> int:
    """Return the matrix's epoch in seconds, the SOURCE_DATE_EPOCH of every build."""
    return calendar.timegm(time.strptime(image.matrix.epoch, "%Y-%m-%dT%H:%M:%SZ"))


def variables(image: Image, locks: Path) -> Variables:
    """Return what the templates may name of an image.

    InputError: its lock is damaged, or its wheel was not read yet.
    """
    minor = image.python_minor
    *layers, rest = package_layers(image, locks)
    return {
        "image": image,
        "wheel": image.wheel,
        "epoch": epoch_seconds(image),
        "prefix": PREFIX,
        "python_minor": minor,
        "site_packages": f"{PREFIX}/lib/python{minor}/site-packages",
        "labels": [f'{name}="{value}"' for name, value in pin_labels(image).items()],
        "compilers": _compilers(image),
        **_paths(image),
        **_downloads(image, locks),
        **_packages(image),
        **_cuda(image, layers),
        "own_programs": [
            *(["venv/python"] if image.python.origin == "apt" else []),
            *(["mpiexec-ssh"] if image.mpi.flavour == "intelmpi" else []),
        ],
        "other_tensorflows": [
            name for name in OTHER_TENSORFLOWS if name not in {image.distribution, *image.provided}
        ],
        # What another lock of builders made of a source distribution must not be found in it.
        "uv_cache": f"imgbuild-uv-{sha256(lock_text(locks / image.build_lock_name).encode())[:8]}",
        "package_layers": layers,
        "other_packages": rest,
        "compiler_words": _compiler_words(image),
    }


def _paths(image: Image) -> Environment:
    mpi = image.mpi
    root = MPI_ROOT if mpi.origin == "index" else ""
    programs = [f"{root}/bin"] if root else []
    conda = ["/opt/miniconda/bin"] if image.python.origin == "conda" else []
    path = ":".join((f"{PREFIX}/bin", *programs, *conda, *SYSTEM_PATH, *USER_PATH))
    environment = (
        ("PATH", path),
        ("LANG", "C.UTF-8"),
        ("PIP_CONSTRAINT", CONSTRAINTS),
        ("UV_CONSTRAINT", CONSTRAINTS),
        *MPI_ENVIRONMENT.get(mpi.flavour, ()),
        *(LIBFABRIC_ENVIRONMENT if root and Version(mpi.version) >= LIBFABRIC else ()),
        *(GPU_ENVIRONMENT if image.cuda else ()),
        *(PTX_CACHE if image.index_cuda else ()),
    )
    values = {"root": root, "driver": driver_cuda(image)}
    return {
        "mpi_root": root,
        "mpi_path": f"{programs[0]}:" if root else "",
        "path": path,
        "init": json.dumps(INIT),
        "environment": tuple((name, value.format(**values)) for name, value in environment),
    }


def _downloads(image: Image, locks: Path) -> Downloads:
    sources = named_sources(image)
    packages = conda_packages(image.version_of("python"), image.python, locks)
    return {
        "downloads": sources,
        "python_source": sources.get("cpython"),
        "miniconda": sources.get("miniconda"),
        "mpi_source": sources.get("mpi"),
        "conda_packages": [(package.url, package.sha256) for package in packages],
        "uv": image.matrix.uv,
    }


def _packages(image: Image) -> SystemPackages:
    packages = image.os.packages
    git = f"git=1:{image.version_of('git')}-*"  # whatever the archive's revision
    mpi = image.mpi
    unneeded = set[str]() if image.horovod and image.horovod.cmake else {"cmake"}
    runtime, build = (mpi.runtime, mpi.build) if mpi.origin == "apt" else ((), ())
    return {
        "os_packages": sorted({*packages.runtime, git}),
        "python_packages": image.python.packages if image.python.origin == "apt" else (),
        "mpi_packages": sorted(runtime),
        "mpi_build_packages": build,
        "mpi_without": mpi.without if mpi.origin == "apt" else [],
        "compiler_packages": sorted({*packages.compiler} - unneeded),
        "cpython_packages": sorted({*packages.compiler, *packages.cpython} - {"cmake"}),
    }


def nvidia_libraries(image: Image) -> list[str]:
    """Return the packages of cuDNN and NCCL for the image's CUDA of NVIDIA's repositories."""
    cuda, cudnn, nccl = (image.version_of(name) for name in ("cuda", "cudnn", "nccl"))
    return [f"libcudnn7={cudnn}-1+cuda{cuda}", f"libnccl2={nccl}-1+cuda{cuda}"]


def _cuda(image: Image, layers: Sequence[PackageLayer]) -> CudaValues:
    if image.index_cuda:
        return _index_cuda(image.index_cuda, layers)
    return _apt_cuda(image, image.apt_cuda) if image.apt_cuda else {"cuda_layer": None}


def _apt_cuda(image: Image, cuda: AptCuda) -> CudaValues:
    """Return the packages of the image's CUDA, cuDNN and NCCL, and where they come from."""
    version, nccl = image.version_of("cuda"), image.version_of("nccl")
    runtime = sorted({*cuda.runtime, *nvidia_libraries(image), *image.os.packages.gpu})
    return {
        "cuda_version": version,
        "cuda_packages": runtime,
        "cuda_build_packages": sorted(
            {*runtime, *cuda.build, f"libnccl-dev={nccl}-1+cuda{version}"}
        ),
        "nvidia_repositories": [_repository(image, name) for name in NVIDIA_UPSTREAMS],
        "cuda_layer": None,
        "capabilities": _numbers(image.wheel.native),
    }


def _index_cuda(cuda: IndexCuda, layers: Sequence[PackageLayer]) -> CudaValues:
    """Return the layer of CUDA's wheels, what compiles Horovod, and the GPUs that it is for."""
    return {
        "cuda_layer": next(
            (layer.name for layer in layers if cuda.cudnn_package in layer.packages), None
        ),
        "cuda_compilers": [f"g++-{cuda.compiler}"],
        "capabilities": _numbers(cuda.kernels),
    }


def _numbers(capabilities: Collection[str]) -> str:
    return ",".join(capability.replace(".", "") for capability in capabilities)


def _repository(image: Image, name: str) -> Repository:
    upstream = image.matrix.upstreams.get(name)
    if upstream is None or upstream.url is None or upstream.keyring is None:
        raise InputError(f"matrix.yaml: upstreams.{name} needs a url and a keyring.")
    return {"name": name, "url": upstream.url, "keyring": upstream.keyring.file}


def _compilers(image: Image) -> Compilers:
    """Return the wheel's own compiler where the operating system has it, else the default one."""
    if image.index_cuda:
        suffix = f"-{image.index_cuda.compiler}"
        return {"cc": f"gcc{suffix}", "cxx": f"g++{suffix}", "header": False}
    release = minor_of(image.wheel.compiler)
    old = release.startswith("4.")
    suffix = f"-{release}" if old and release in image.os.compilers else ""
    return {"cc": f"gcc{suffix}", "cxx": f"g++{suffix}", "header": old and not suffix}


def _compiler_words(image: Image) -> str:
    """Return how TensorFlow itself names its compiler: from 2.21 on Clang is no Ubuntu's."""
    clang = "Clang " if admits(">=2.21", image.tensorflow) else "Ubuntu Clang "
    return image.wheel.compiler.replace("clang-", clang)
