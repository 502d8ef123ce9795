"""The values that the Dockerfile templates use, computed from an image. Pure but for its lock."""

import calendar
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from imgbuild.core.files import sha256
from imgbuild.dockerfile.labels import pin_labels
from imgbuild.locks.conda import conda_packages
from imgbuild.locks.lockfile import PackageLayer, package_layers, read_lock_text
from imgbuild.matrix.gpus import driver_cuda
from imgbuild.matrix.image_sources import image_sources
from imgbuild.matrix.images import Image, minor_of
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
#: The first process of a container: it forwards signals and collects orphans. It is in the lock
#: because Ubuntu 16.04 and 18.04 have no such package. It ends with 2 if there is no such command.
#: as-user becomes env, which becomes the command or ends with 127, or 126 if the command cannot be
#: run, as shells do.
INIT = (f"{PREFIX}/bin/dumb-init", "--", "/usr/local/bin/as-user")

#: The versions of the packages that stay, for pip and uv.
CONSTRAINTS = f"{PREFIX}/constraints.txt"

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: Where `pip install --user` puts scripts of the users that an image has; as-user adds others'.
USER_PATH = ("/root/.local/bin", "/home/mpiuser/.local/bin")
#: NVIDIA's container runtime reads these: all devices, the libraries for computing, and the CUDA
#: release that a driver must know for the container to start. Other runtimes mount the driver at
#: the folders. Source: NVIDIA container toolkit, "Environment variables".
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


#: By the names that the templates use; `StrictUndefined` refuses others.
Variables = dict[str, object]


def epoch_seconds(image: Image) -> int:
    """Return the matrix's epoch in seconds, the SOURCE_DATE_EPOCH of every build."""
    date = time.strptime(image.matrix.epoch, "%Y-%m-%dT%H:%M:%SZ")
    return calendar.timegm(date)


def template_variables(image: Image, locks: Path) -> Variables:
    """Return what the templates may name of an image.

    InputError: its lock is damaged, or its wheel was not read yet.
    """
    minor = image.python_minor
    *layers, rest = package_layers(image, locks)
    # TensorFlow's own name of it: from 2.21 on Clang is no Ubuntu's.
    clang = "Clang" if admits(">=2.21", image.tensorflow) else "Ubuntu Clang"
    programs = []
    if image.python.origin == "apt":
        programs.append("venv/python")
    if image.mpi.flavour == "intelmpi":
        programs.append("mpiexec-ssh")
    # Another lock of builders makes other files of a source distribution: uv must not reuse them.
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
        "sources": image_sources(image),
        "conda_packages": conda_packages(python, image.python, locks),
        "uv": image.matrix.uv,
        "init": json.dumps(INIT),
        **_environment(image),
        **_system_packages(image),
        **_cuda(image, layers),
        "own_programs": programs,
        "uv_cache": f"imgbuild-uv-{build_digest[:8]}",
        "package_layers": layers,
        "other_packages": rest,
    }


def _environment(image: Image) -> Variables:
    """Return where the programs are, and the environment of the image's processes."""
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
        # Else pip tries to compile a newer release. Its constraints are in pip.conf.
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
    """Return the packages of the distribution, by the stage that installs them."""
    packages, mpi = image.os.packages, image.mpi
    git = f"git=1:{image.version_of('git')}-*"  # whatever the archive's revision
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
    """Return the packages of cuDNN and NCCL for the image's CUDA of NVIDIA's repositories."""
    cuda = image.version_of("cuda")
    cudnn = image.version_of("cudnn")
    nccl = image.version_of("nccl")
    return [f"libcudnn7={cudnn}-1+cuda{cuda}", f"libnccl2={nccl}-1+cuda{cuda}"]


def _cuda(image: Image, layers: Sequence[PackageLayer]) -> Variables:
    """Return what CUDA is made of, what compiles Horovod for it, and the GPUs that this is for."""
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
        if site.keyring:  # as the matrix is loaded, each has one
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
    """Return the wheel's own compiler where the operating system has it, else the default one.

    ``header`` says whether it needs gcc 4's std::function.
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
