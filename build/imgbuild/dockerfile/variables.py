"""The values that the Dockerfile templates use, computed from an image. Pure but for its lock."""

import calendar
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from imgbuild.dockerfile.conda import conda_packages
from imgbuild.dockerfile.labels import pin_labels
from imgbuild.dockerfile.lockfile import PackageLayer, package_layers
from imgbuild.errors import InputError
from imgbuild.matrix.gpus import driver_cuda
from imgbuild.matrix.images import Image, minor_of

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
#: command; env becomes the command, or ends with 127 (126: it cannot be run), as shells do.
INIT = (f"{PREFIX}/bin/dumb-init", "--", "/usr/bin/env", "--")

#: What is installed, as constraints: pip and uv keep to the file that their variables name.
CONSTRAINTS = f"{PREFIX}/constraints.txt"

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

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
#: The first Horovod with a CUDA kernel. Its CMake has two targets, horovod_cuda_kernels and
#: compatible_horovod_cuda_kernels, that generate one file: seen to fail with make -j2.
KERNELS = Version("0.20")
#: One whose CMake compiles each target's own file: 0.28.1 was compiled with -j2.
KERNELS_APART = Version("0.28")
#: The first Horovod with Adasum, whose header is changed (images/files/adasum_float16.py).
ADASUM = Version("0.19")
#: What installs the packages where no build gives it: the program of this package's own dependency,
#: by its wheel for Linux, whatever the machine that builds.
UV_VERSION = "0.13.8"
UV_SHA256 = "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984"
#: The upstreams of the gpu variant's packages, in the order of the templates.
NVIDIA_UPSTREAMS = ("nvidia-cuda", "nvidia-machine-learning")


def epoch_seconds(image: Image) -> int:
    """Return the matrix's epoch in seconds, the SOURCE_DATE_EPOCH of every build."""
    return calendar.timegm(time.strptime(image.matrix.epoch, "%Y-%m-%dT%H:%M:%SZ"))


def variables(image: Image, locks: Path) -> dict[str, object]:
    """Return what the templates may name of an image; InputError if its lock is damaged."""
    minor = image.python_minor
    *layers, rest = package_layers(image, locks)
    return {
        "image": image,
        "epoch": epoch_seconds(image),
        "prefix": PREFIX,
        "python_minor": minor,
        "site_packages": f"{PREFIX}/lib/python{minor}/site-packages",
        "labels": [f'{name}="{value}"' for name, value in pin_labels(image).items()],
        "compilers": _compilers(image),
        "adasum": Version(image.version_of("horovod")) >= ADASUM,
        "one_by_one": image.cuda is not None
        and KERNELS <= Version(image.version_of("horovod")) < KERNELS_APART,
        **_paths(image),
        **_downloads(image, locks),
        **_packages(image),
        **_cuda(image),
        **_index_cuda(image, layers),
        "package_layers": layers,
        "other_packages": rest,
    }


def _paths(image: Image) -> dict[str, object]:
    mpi = image.mpi
    root = MPI_ROOT if mpi.origin == "index" else ""
    programs = [f"{root}/bin"] if root else []
    conda = ["/opt/miniconda/bin"] if image.python.origin == "conda" else []
    path = ":".join((f"{PREFIX}/bin", *programs, *conda, *SYSTEM_PATH))
    environment = (
        ("PATH", path),
        ("LANG", "C.UTF-8"),
        ("PIP_CONSTRAINT", CONSTRAINTS),
        ("UV_CONSTRAINT", CONSTRAINTS),
        *MPI_ENVIRONMENT[mpi.flavour],
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


def _downloads(image: Image, locks: Path) -> dict[str, object]:
    sources = named_sources(image)
    packages = conda_packages(image.version_of("python"), image.python, locks)
    return {
        "downloads": sources,
        "python_source": sources.get("cpython"),
        "miniconda": sources.get("miniconda"),
        "mpi_source": sources.get("mpi"),
        "conda_packages": [(package.url, package.sha256) for package in packages],
        "uv_version": UV_VERSION,
        "uv_sha256": UV_SHA256,
    }


def _packages(image: Image) -> dict[str, object]:
    packages = image.os.packages
    git = f"git=1:{image.version_of('git')}-*"  # whatever the archive's revision
    mpi = image.mpi
    # Horovod has a CMake build since 0.20.
    unneeded = {"cmake"} if Version(image.version_of("horovod")) < KERNELS else set[str]()
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


def _cuda(image: Image) -> dict[str, object]:
    """Return the packages of the image's CUDA, cuDNN and NCCL, and where they come from."""
    if image.apt_cuda is None:
        return {}
    cuda, nccl = image.version_of("cuda"), image.version_of("nccl")
    runtime = sorted({*image.apt_cuda.runtime, *nvidia_libraries(image), *image.os.packages.gpu})
    return {
        "cuda_version": cuda,
        "cuda_packages": runtime,
        "cuda_build_packages": sorted(
            {*runtime, *image.apt_cuda.build, f"libnccl-dev={nccl}-1+cuda{cuda}"}
        ),
        "nvidia_repositories": [_repository(image, name) for name in NVIDIA_UPSTREAMS],
        "capabilities": ",".join(c.replace(".", "") for c in image.wheel.gpu.native),
    }


def _index_cuda(image: Image, layers: Sequence[PackageLayer]) -> dict[str, object]:
    """Return the layer of CUDA's wheels, what compiles Horovod, and the GPUs that it is for."""
    cuda = image.index_cuda
    if cuda is None:
        return {"cuda_layer": None}
    return {
        "cuda_layer": next(
            (one.name for one in layers if cuda.cudnn_package in one.packages), None
        ),
        "cuda_compilers": [f"g++-{cuda.compiler}"],
        "capabilities": ",".join(c.replace(".", "") for c in cuda.kernels),
    }


def _repository(image: Image, name: str) -> dict[str, str]:
    upstream = image.matrix.upstreams.get(name)
    if upstream is None or upstream.url is None or upstream.keyring is None:
        raise InputError(f"matrix.yaml: upstreams.{name} needs a url and a keyring.")
    return {"name": name, "url": upstream.url, "keyring": upstream.keyring.file}


@dataclass(frozen=True)
class NamedSource:
    """A download as the Dockerfile has it: ``argument`` is the ARG that holds its sha256."""

    argument: str
    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        return file_name(self.url)


def file_name(url: str) -> str:
    """Return the name of a download in the build context."""
    return url.rsplit("/", 1)[1]


def named_sources(image: Image) -> dict[str, NamedSource]:
    """Return the image's downloads by what they are for: cpython, miniconda, mpi."""
    pins = {pin.component: pin for pin in image.pins}
    names = {"cpython": "python", "miniconda": "miniconda", "mpi": "mpi"}
    return {
        name: NamedSource(f"SHA256_{name.upper()}", pin.source, pin.sha256)
        for name, component in names.items()
        if (pin := pins.get(component)) and pin.sha256
    }


def _compilers(image: Image) -> dict[str, object]:
    """Return the wheel's own compiler where the operating system has it, else the default one.

    ``header`` says whether the default one needs the changed header.
    """
    if image.index_cuda:
        suffix = f"-{image.index_cuda.compiler}"
        return {"cc": f"gcc{suffix}", "cxx": f"g++{suffix}", "header": False}
    release = minor_of(image.wheel.compiler)
    old = release.startswith("4.")
    suffix = f"-{release}" if old and release in image.os.compilers else ""
    return {"cc": f"gcc{suffix}", "cxx": f"g++{suffix}", "header": old and not suffix}
