"""Compute the values for the Dockerfile templates from an image and its lock."""

import calendar
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from imgbuild.core.errors import InputError
from imgbuild.core.files import sha256
from imgbuild.dockerfile.labels import pin_labels
from imgbuild.locks.conda import conda_packages
from imgbuild.locks.lockfile import PackageLayer, package_layers, read_lock_text
from imgbuild.locks.requirements import uv_platform
from imgbuild.matrix.gpus import driver_cuda
from imgbuild.matrix.image_sources import image_sources
from imgbuild.matrix.images import Image, for_other_architecture, minor_of
from imgbuild.matrix.rules import admits

#: The folder of the interpreter and the packages in every image.
PREFIX = "/opt/python"

#: Open MPI refuses to run as root unless both OMPI_ALLOW variables are set. Its shared-memory
#: transport prints "Read -1, expected" if the container may not use process_vm_readv. The variables
#: are set with ENV because `docker exec` and Kubernetes bypass an entry point.
#: Source: Open MPI FAQ, "running as root"; open-mpi/ompi issue 4948.
MPI_ENVIRONMENT: Mapping[str, tuple[tuple[str, str], ...]] = {
    "openmpi": (
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ),
    # mpivars.sh also sets I_MPI_ROOT, but some shells read no profile. mpiexec 2021.8 waits forever
    # if a node is lost, so the program that starts the nodes ends it (images/files).
    # Source: Intel MPI Developer Reference, "Hydra Environment Variables".
    "intelmpi": (
        ("I_MPI_ROOT", "{root}"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/usr/local/bin/mpiexec-ssh"),
    ),
}
#: The first Intel MPI that sends through libfabric. Its providers are in a separate folder, and TCP
#: works in every network. Source: Intel MPI's env/vars.sh; libfabric's fi_provider(7).
LIBFABRIC = Version("2019")
LIBFABRIC_ENVIRONMENT = (
    ("FI_PROVIDER_PATH", "{root}/lib/libfabric/prov"),
    ("FI_PROVIDER", "tcp"),
)
#: The folder of an MPI from the package index.
MPI_ROOT = "/opt/impi"
#: The first process of a container. dumb-init forwards signals and reaps orphans. It is in the lock
#: because Ubuntu 16.04 and 18.04 do not have the package. It exits with 2 if as-user is missing.
#: as-user executes env, which executes the command. As in shells, the exit code is 127 if the
#: command is missing, and 126 if it cannot be run.
INIT = (f"{PREFIX}/bin/dumb-init", "--", "/usr/local/bin/as-user")

#: The file that fixes the versions of packages for pip and uv.
CONSTRAINTS = f"{PREFIX}/constraints.txt"

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: The folders of scripts from `pip install --user`, for the image's users; as-user adds others.
USER_PATH = ("/root/.local/bin", "/home/mpiuser/.local/bin")
#: NVIDIA's container runtime reads the variables NVIDIA_*: all devices, the libraries for
#: computing, and the CUDA release that the driver must support. Other runtimes mount the driver in
#: the folders of LD_LIBRARY_PATH. Source: NVIDIA container toolkit, "Environment variables".
GPU_ENVIRONMENT = (
    ("LD_LIBRARY_PATH", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"),
    ("NVIDIA_VISIBLE_DEVICES", "all"),
    ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
    ("NVIDIA_REQUIRE_CUDA", "cuda>={driver}"),
)
#: The size of the driver's cache for code compiled from PTX, in bytes: 4 GiB, the maximum. The
#: default is too small for a whole TensorFlow.
#: Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
PTX_CACHE = (("CUDA_CACHE_MAXSIZE", "4294967296"),)
#: The upstreams of NVIDIA's apt packages, in the order of the templates.
NVIDIA_UPSTREAMS = ("nvidia-cuda", "nvidia-machine-learning")


#: Values by the names used in templates; `StrictUndefined` rejects other names.
Variables = dict[str, object]


def epoch_seconds(image: Image) -> int:
    """Return the matrix's epoch in seconds, the SOURCE_DATE_EPOCH of every build."""
    date = time.strptime(image.matrix.epoch, "%Y-%m-%dT%H:%M:%SZ")
    return calendar.timegm(date)


def template_variables(image: Image, locks: Path) -> Variables:
    """Return the values of an image for the templates.

    InputError: its lock is damaged, or the facts about its wheel are missing.
    """
    minor = image.python_minor
    *layers, rest = package_layers(image, locks)
    # Use TensorFlow's own name of the compiler: from 2.21 on, it is not built with Ubuntu's Clang.
    clang = "Clang" if admits(">=2.21", image.tensorflow) else "Ubuntu Clang"
    arm64 = for_other_architecture(image)
    by_build_machine = arm64 is not None and arm64.uses_build_machine
    uv = image.matrix.uv
    programs = []
    if image.python.origin == "apt":
        programs.append("venv/python")
    if image.mpi.flavour == "intelmpi":
        programs.append("mpiexec-ssh")
    # With another build lock, a source distribution builds other files, which uv must not reuse.
    build_lock = read_lock_text(locks / image.build_lock_name)
    build_digest = sha256(build_lock.encode())
    labels = []
    for name, value in pin_labels(image).items():
        labels.append(f'{name}="{value}"')
    python = image.version_of("python")
    return {
        "image": image,
        "epoch": epoch_seconds(image),
        "prefix": PREFIX,
        "python_minor": minor,
        "site_packages": f"{PREFIX}/lib/python{minor}/site-packages",
        "labels": labels,
        "compilers": _compilers(image),
        "compiler_words": image.wheel.compiler.replace("clang-", f"{clang} "),
        "arm64": arm64,
        "by_build_machine": by_build_machine,
        "arm64_labels": _own_labels(arm64, image) if arm64 else [],
        "arm64_compiler": arm64.wheel.compiler.replace("clang-", f"{clang} ") if arm64 else "",
        "arm64_platform": uv_platform(image.os.glibc, arm64.machine) if arm64 else "",
        "arm64_layers": _arm64_layers(arm64, (*layers, rest), locks) if arm64 else {},
        "sources": image_sources(image),
        "conda_packages": conda_packages(python, image.python, locks),
        "uv": uv,
        "uv_sha256": " ".join(uv.hashes if by_build_machine else [uv.sha256]),
        "init": json.dumps(INIT),
        **_environment(image),
        **_system_packages(image),
        **_cuda(image, layers),
        "own_programs": programs,
        "uv_cache": f"imgbuild-uv-{build_digest[:8]}",
        "package_layers": layers,
        "other_packages": rest,
    }


def _own_labels(arm64: Image, image: Image) -> list[str]:
    """Return the labels for arm64 that differ from those for amd64."""
    usual = pin_labels(image)
    own = {name: value for name, value in pin_labels(arm64).items() if usual[name] != value}
    return [f'{name}="{value}"' for name, value in own.items()]


def _arm64_layers(
    arm64: Image, layers: Iterable[PackageLayer], locks: Path
) -> dict[str, PackageLayer]:
    """Return the layers for arm64 whose packages differ from those for amd64, by name.

    InputError: the lock for arm64 has other layers.
    """
    others = {layer.name: layer for layer in package_layers(arm64, locks)}
    if list(others) != [layer.name for layer in layers]:
        raise InputError(
            f"images/locks/{arm64.lock_name} has packages for the layers {', '.join(others)}, but "
            "the lock for amd64 has others. One Dockerfile cannot install both."
        )
    return {
        layer.name: others[layer.name]
        for layer in layers
        if others[layer.name].file_name != layer.file_name
    }


def _environment(image: Image) -> Variables:
    """Return the paths of programs and the environment variables of the image."""
    root = mpi_path = ""
    path = [f"{PREFIX}/bin"]
    if image.mpi.origin == "index":
        root = MPI_ROOT
        mpi_path = f"{root}/bin:"
        path.append(f"{root}/bin")
    if image.python.origin == "conda":
        path.append("/opt/miniconda/bin")
    path += SYSTEM_PATH
    path += USER_PATH
    environment = [
        ("PATH", ":".join(path)),
        ("LANG", "C.UTF-8"),
        # Without it, pip tries to compile newer releases. pip's constraints are in pip.conf.
        ("PIP_PREFER_BINARY", "1"),
        ("UV_CONSTRAINT", CONSTRAINTS),
        *MPI_ENVIRONMENT.get(image.mpi.flavour, ()),
    ]
    if root and Version(image.mpi.version) >= LIBFABRIC:
        environment += LIBFABRIC_ENVIRONMENT
    if image.cuda:
        environment += GPU_ENVIRONMENT
    if image.index_cuda:
        environment += PTX_CACHE
    driver = driver_cuda(image)
    formatted = []
    for name, value in environment:
        text = value.format(root=root, driver=driver)
        formatted.append((name, text))
    return {"mpi_root": root, "mpi_path": mpi_path, "environment": formatted}


def _system_packages(image: Image) -> Variables:
    """Return the distribution's packages, by the stage that installs them."""
    packages, mpi = image.os.packages, image.mpi
    git = f"git=1:{image.version_of('git')}-*"  # any revision in the archive
    runtime = {*packages.runtime, git}
    python_packages = image.python.packages if image.python.origin == "apt" else ()
    cpython = {*packages.compiler, *packages.cpython}
    cpython.discard("cmake")
    compiler = {*packages.compiler}
    if not (image.horovod and image.horovod.cmake):
        compiler.discard("cmake")
    variables: Variables = {
        "os_packages": sorted(runtime),
        "python_packages": python_packages,
        "mpi_packages": [],
        "mpi_build_packages": (),
        "mpi_without": (),
        "compiler_packages": sorted(compiler),
        "cpython_packages": sorted(cpython),
    }
    if mpi.origin == "apt":
        variables["mpi_packages"] = sorted(mpi.runtime)
        variables["mpi_build_packages"] = mpi.build
        variables["mpi_without"] = mpi.without
    return variables


def nvidia_libraries(image: Image) -> list[str]:
    """Return NVIDIA's apt packages of cuDNN and NCCL for the image's CUDA."""
    cuda = image.version_of("cuda")
    cudnn = image.version_of("cudnn")
    nccl = image.version_of("nccl")
    return [f"libcudnn7={cudnn}-1+cuda{cuda}", f"libnccl2={nccl}-1+cuda{cuda}"]


def _cuda(image: Image, layers: Sequence[PackageLayer]) -> Variables:
    """Return the packages of CUDA, the compilers of Horovod for it, and the supported GPUs."""
    variables: Variables = {"cuda_layer": None}
    if cuda := image.index_cuda:
        for layer in layers:
            if cuda.cudnn_package in layer.packages:
                variables["cuda_layer"] = layer.name
        variables["cuda_compilers"] = [f"g++-{cuda.compiler}"]
        variables["capabilities"] = _join_capabilities(cuda.kernels)
    if image.apt_cuda is None:
        return variables
    version = image.version_of("cuda")
    nccl = image.version_of("nccl")
    runtime = {*image.apt_cuda.runtime, *nvidia_libraries(image), *image.os.packages.gpu}
    headers = f"libnccl-dev={nccl}-1+cuda{version}"
    build = {*runtime, *image.apt_cuda.build, headers}
    repositories = []
    for name in NVIDIA_UPSTREAMS:
        site = image.matrix.upstreams[name]
        if site.keyring:  # always true, because loading the matrix checks it
            repository = {"name": name, "url": site.url, "keyring": site.keyring.file}
            repositories.append(repository)
    return {
        **variables,
        "cuda_version": version,
        "cuda_packages": sorted(runtime),
        "cuda_build_packages": sorted(build),
        "nvidia_repositories": repositories,
        "capabilities": _join_capabilities(image.wheel.native),
    }


def _join_capabilities(capabilities: Iterable[str]) -> str:
    digits = [capability.replace(".", "") for capability in capabilities]
    return ",".join(digits)


def _compilers(image: Image) -> Variables:
    """Return the compiler that built the wheel if the system has it, else the default compiler.

    ``header`` is true if the compiler needs gcc 4's std::function.
    """
    suffix = ""
    header = False
    if image.index_cuda:
        suffix = f"-{image.index_cuda.compiler}"
    else:
        release = minor_of(image.wheel.compiler)
        if release.startswith("4."):
            if release in image.os.compilers:
                suffix = f"-{release}"
            else:
                header = True
    return {"cc": f"gcc{suffix}", "cxx": f"g++{suffix}", "header": header}
