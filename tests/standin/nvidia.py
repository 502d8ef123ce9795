"""NVIDIA's two apt repositories for each Ubuntu release: CUDA, and cuDNN with NCCL."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from imgbuild.matrix.model import Matrix
from standin.apt_repository import SigningKey, write_flat
from standin.context import Context
from standin.deb import LDCONFIG, Package, write_deb
from standin.nvidia_files import Headers, files_of
from standin.wheel_functions import locked_wheels, wheel_functions
from standin.workbench import files_below, wheels

_SOURCES = (
    "nvidia.py", "nvidia_files.py", "stub_library.py", "wheel_functions.py", "deb.py",
    "apt_repository.py", "files/nvcc.pl", "requirements-headers.txt",
)  # fmt: skip
#: Depended upon by NVIDIA's packages without being pinned. The compiler's package had another name
#: in 9.0, where the matrix pins it.
_DEPENDENCIES = ("cuda-license", "cuda-misc-headers", "cuda-nvcc")
#: What headers among the system's depend upon.
_LIBRARIES = {
    "libnccl-dev": "libnccl2",
    "libcublas-dev": "libcublas10",
    "libcudnn7-dev": "libcudnn7",
}


def cuda_repositories(context: Context, key: SigningKey) -> Path:
    """Return the folder that stands for .../compute/cuda/repos."""
    return _repositories(context, "nvidia-cuda", _cuda_pins, key)


def machine_learning_repositories(context: Context, key: SigningKey) -> Path:
    """Return the folder that stands for .../compute/machine-learning/repos."""
    return _repositories(context, "nvidia-machine-learning", _learning_pins, key)


#: Returns packages with their versions, for a CUDA of the matrix.
Pins = Callable[[Matrix, str], Iterable[tuple[str, str]]]


def _repositories(context: Context, name: str, pins_of: Pins, key: SigningKey) -> Path:
    """Return the repositories of all Ubuntu releases: package, version and CUDA by release."""
    matrix = context.matrix
    systems = {name: system for name, system in matrix.operating_systems.items() if system.nvidia}
    pins = {
        system: sorted(
            {
                (package, version, cuda)
                for cuda, table in matrix.cuda.items()
                if system in table.os
                for package, version in pins_of(matrix, cuda)
            }
        )
        for system in systems
    }
    names = {name: system.nvidia for name, system in systems.items()}
    made_from = [pins, key.fingerprint, names, locked_wheels(context)]

    def make(folder: Path) -> None:
        headers = _headers(context)
        for system, packages in pins.items():
            place = folder / str(names[system]) / "x86_64"
            place.mkdir(parents=True)
            for package in _packages(packages, headers):
                write_deb(package, place / package.file_name)
            write_flat(place, f"NVIDIA stand-in ({name})", key)

    return context.stored(name, made_from, _SOURCES, make)


def _packages(pins: Iterable[tuple[str, str, str]], headers: Headers) -> Iterator[Package]:
    for name, version, cuda in pins:
        files = files_of(name, version, cuda, headers)
        needs = _depends(name, version, cuda)
        about = f"{name} of CUDA {cuda}; no GPU code in it"
        scripts = {"triggers": LDCONFIG} if files else {}
        fields = {"Section": "non-free/devel", **({"Depends": needs} if needs else {})}
        yield Package(name, version, about, fields, files, scripts)


def _depends(name: str, version: str, cuda: str) -> str:
    dashed = cuda.replace(".", "-")
    if library := _LIBRARIES.get(name):
        return f"{library} (= {version})"
    if name in {"libnccl2", "libcudnn7"} or name.startswith(("cuda-license-", "cuda-misc-")):
        return ""
    needs = [f"cuda-license-{dashed}"]
    needs += [f"cuda-cudart-{dashed}"] if name.startswith("cuda-cudart-dev-") else []
    needs += [f"cuda-driver-dev-{dashed}"] if name.startswith("cuda-cudart-dev-") else []
    needs += [f"cuda-misc-headers-{dashed}"] if "-dev-" in name else []
    if name.startswith("cuda-minimal-build-"):
        compiler = "core" if cuda == "9.0" else "nvcc"
        needs += [f"cuda-cudart-dev-{dashed}", f"cuda-{compiler}-{dashed}"]
    return ", ".join(needs)


def _cuda_pins(matrix: Matrix, cuda: str) -> list[tuple[str, str]]:
    """Return the pinned packages of one CUDA, and what they depend on."""
    table = matrix.cuda[cuda]
    pinned = [
        (pin.partition("=")[0], pin.partition("=")[2]) for pin in (*table.runtime, *table.build)
    ]
    version = next(version for name, version in pinned if name.startswith("cuda-cudart-"))
    dashed = cuda.replace(".", "-")
    own = any(name.startswith("cuda-core-") for name, _ in pinned)
    needed = [name for name in _DEPENDENCIES if not (own and name == "cuda-nvcc")]
    return [*pinned, *((f"{name}-{dashed}", version) for name in needed)]


def _learning_pins(matrix: Matrix, cuda: str) -> set[tuple[str, str]]:
    """Return the packages of cuDNN and NCCL with the releases that the stacks pin."""
    found: set[tuple[str, str]] = set()
    for stack in matrix.stacks.values():
        if not matrix.operating_systems[stack.os].nvidia:
            continue
        if cudnn := stack.pins.cudnn:
            found.add((f"libcudnn{cudnn.version.partition('.')[0]}", cudnn.version))
        if nccl := stack.pins.nccl:
            found |= {(name, nccl.version) for name in ("libnccl2", "libnccl-dev")}
    return {(name, f"{version}-1+cuda{cuda}") for name, version in found}


def _headers(context: Context) -> Headers:
    found = {path.name.split("-")[0]: path for path in wheels(context, _SOURCES[-1])}
    runtime, compiler = (
        _below(found[f"nvidia_{name}_cu11"], f"nvidia/{name}/include/")
        for name in ("cuda_runtime", "cuda_nvcc")
    )
    nccl = _below(found["nvidia_nccl_cu11"], "nvidia/nccl/include/")["nccl.h"]
    return Headers(runtime, compiler, nccl.decode(), wheel_functions(context))


def _below(wheel: Path, folder: str) -> dict[str, bytes]:
    found = {name: content for name, content, _ in files_below(wheel, folder)}
    return {name: content for name, content in found.items() if name.endswith((".h", ".hpp"))}
