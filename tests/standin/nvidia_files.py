"""What NVIDIA's packages put into the file system: libraries, links and headers, by package name.

The layout is that of NVIDIA's packages of CUDA 9.0 to 10.1: libraries in
/usr/local/cuda-X.Y/targets/x86_64-linux/lib, but cuBLAS of 10.1, cuDNN and NCCL among the system's.
As there, no package makes /usr/local/cuda.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from standin.context import HERE
from standin.deb import Member
from standin.stub_library import (
    StubLibrary,
    compile_library,
    cuda_number,
    release_number,
)
from standin.wheel_functions import Functions
from standin.workbench import scratch

Files = dict[str, Member]
SYSTEM = "usr/lib/x86_64-linux-gnu"
_CUDA_LIBRARY = re.compile(
    r"cuda-(cublas|cufft|curand|cusolver|cusparse|cudart|cupti|nvtx)(-dev)?-(\d+-\d+)"
)
_DECLARED = re.compile(r"\bCUDARTAPI (cuda[A-Z]\w+)\(")
_SYSTEM_LIBRARY = re.compile(r"lib(cublas|cudnn|nccl)(\d+|-dev)")


@dataclass(frozen=True)
class Headers:
    """NVIDIA's headers: the run time's and the compiler's by path, and the text of ``nccl.h``.

    ``wheels`` are the functions that TensorFlow's wheels ask for, by CUDA and library.
    """

    runtime: Mapping[str, bytes]
    compiler: Mapping[str, bytes]
    nccl: str
    wheels: Mapping[str, Functions]

    def functions_of(self, library: str, cuda: str) -> list[str]:
        """Return the names that TensorFlow and Horovod ask a library for."""
        found = {*self.wheels.get(cuda, {}).get(library, ())}
        if library == "cudart":  # Horovod's are in no wheel: all that its compiler knows
            found |= {*_DECLARED.findall(self.runtime["cuda_runtime_api.h"].decode())}
        return sorted(found)


def files_of(name: str, version: str, cuda: str, headers: Headers) -> Files:
    """Return the files of one package; none for a package that only depends on others."""
    library, system = _CUDA_LIBRARY.fullmatch(name), _SYSTEM_LIBRARY.fullmatch(name)
    if library and library[2]:
        return _development_files(library[1], version, cuda, headers)
    if library:
        return _library_files(library[1], version, cuda, headers)
    if system:
        return _system_files(system[1], version, cuda, headers, dev=system[2] == "-dev")
    if name.startswith("cuda-driver-dev-"):
        return _driver_stub(cuda, headers)
    if name.startswith(("cuda-core-", "cuda-nvcc-")):
        return {**_headers(cuda, headers.compiler), **_compiler(cuda)}
    return _common_files(cuda) if name.startswith("cuda-license-") else {}


def _library_files(library: str, version: str, cuda: str, headers: Headers) -> Files:
    release = version.partition("-")[0]
    if library == "nvtx":
        stub = StubLibrary("nvToolsExt", "libnvToolsExt.so.1", cuda)
        return _shared(stub, f"{_folder(cuda)}/lib", "1.0.0", ["nvtxRangePushA", "nvtxRangePop"])
    if library == "cupti":
        stub = StubLibrary("cupti", f"libcupti.so.{cuda}", cuda)
        names = headers.functions_of("cupti", cuda) or ["cuptiGetVersion"]
        place = f"usr/local/cuda-{cuda}/extras/CUPTI/lib64"
        return _shared(stub, place, release, names)
    stub = StubLibrary(library, _soname(library, cuda), cuda, cuda_number(cuda))
    names = headers.functions_of(library, cuda) or [f"{library}Create"]
    return _shared(stub, f"{_folder(cuda)}/lib", release, names)


def _soname(library: str, cuda: str) -> str:
    """Return the name that programs ask for; from 10.1 on only cudart's has the minor version."""
    whole = cuda != "10.1" or library == "cudart"
    return f"lib{library}.so.{cuda if whole else cuda.partition('.')[0]}"


def _development_files(library: str, version: str, cuda: str, headers: Headers) -> Files:
    folder = _folder(cuda)
    link = {f"{folder}/lib/lib{library}.so": Member(link=_soname(library, cuda))}
    if library != "cudart":
        return link
    release = version.partition("-")[0]
    version_file = Member(f"CUDA Version {release} (stand-in)\n".encode())
    known = {f"usr/local/cuda-{cuda}/version.txt": version_file}
    return {**link, **known, **_headers(cuda, headers.runtime)}


def _headers(cuda: str, headers: Mapping[str, bytes]) -> Files:
    """Return headers as those of this CUDA: the two macros of its version say so."""
    version = rb"\g<1> %d" % cuda_number(cuda)
    macro = re.compile(rb"^(#define (?:CUDART_VERSION|CUDA_VERSION)) +\d+", re.MULTILINE)
    folder = f"{_folder(cuda)}/include"
    return {f"{folder}/{name}": Member(macro.sub(version, text)) for name, text in headers.items()}


def _compiler(cuda: str) -> Files:
    text = (HERE / "files" / "nvcc.pl").read_text(encoding="utf-8")
    text = text.replace("{release}", cuda).replace("{target}", f"/{_folder(cuda)}")
    return {f"usr/local/cuda-{cuda}/bin/nvcc": Member(text.encode(), mode=0o755)}


def _system_files(library: str, version: str, cuda: str, headers: Headers, *, dev: bool) -> Files:
    release = re.split(r"[-+]", version)[0]
    major = release.partition(".")[0]
    if dev:
        link = {f"{SYSTEM}/lib{library}.so": Member(link=f"lib{library}.so.{major}")}
        text = adapted_nccl_header(headers.nccl, release).encode()
        return {**link, **({"usr/include/nccl.h": Member(text)} if library == "nccl" else {})}
    stub = StubLibrary(library, f"lib{library}.so.{major}", cuda, release_number(release))
    names = headers.functions_of(library, cuda)
    if library == "nccl":
        names = declared_functions(headers.nccl)
    found = _shared(stub, SYSTEM, release, names)
    if library == "cublas":
        light = StubLibrary("cublasLt", f"libcublasLt.so.{major}", cuda)
        found |= _shared(light, SYSTEM, release, ["cublasLtCreate", "cublasLtDestroy"])
    return found


def _driver_stub(cuda: str, headers: Headers) -> Files:
    """Return the libcuda.so that programs are linked with; only a driver brings libcuda.so.1."""
    stub = StubLibrary("cuda", "libcuda.so.1", cuda, cuda_number(cuda))
    content = _compiled(stub, headers.functions_of("cuda", cuda))
    return {f"{_folder(cuda)}/lib/stubs/libcuda.so": Member(content)}


def _common_files(cuda: str) -> Files:
    """Return what every CUDA package relies on: the links, and the linker's search path."""
    root, target = f"usr/local/cuda-{cuda}", "targets/x86_64-linux"
    return {
        f"{root}/LICENSE": Member(b"A stand-in for tests: nothing of NVIDIA's is in here.\n"),
        f"{root}/lib64": Member(link=f"{target}/lib"),
        f"{root}/include": Member(link=f"{target}/include"),
        f"etc/ld.so.conf.d/cuda-{cuda.replace('.', '-')}.conf": Member(
            f"/{root}/{target}/lib\n".encode()
        ),
    }


def _shared(stub: StubLibrary, folder: str, release: str, names: list[str]) -> Files:
    base = stub.soname.partition(".so")[0]
    real = f"{base}.so.{release}"
    return {
        f"{folder}/{real}": Member(_compiled(stub, names)),
        f"{folder}/{stub.soname}": Member(link=real),
    }


def _compiled(stub: StubLibrary, names: list[str]) -> bytes:
    with scratch() as folder:
        compile_library(stub, names, folder / "library.so")
        return (folder / "library.so").read_bytes()


def declared_functions(header: str) -> list[str]:
    return sorted(set(re.findall(r"\b(p?nccl[A-Z]\w+)\s*\(", header)))


def adapted_nccl_header(header: str, release: str) -> str:
    """Return ``nccl.h`` as that of another release; newer functions stay declared."""
    major, minor, patch = release.split(".")
    values = {"MAJOR": major, "MINOR": minor, "PATCH": patch}
    for name, value in values.items():
        header = re.sub(rf"(#define NCCL_{name}) \d+", rf"\g<1> {value}", header)
    code = str(release_number(release))
    return re.sub(r"(#define NCCL_VERSION_CODE) \d+", rf"\g<1> {code}", header)


def _folder(cuda: str) -> str:
    return f"usr/local/cuda-{cuda}/targets/x86_64-linux"
