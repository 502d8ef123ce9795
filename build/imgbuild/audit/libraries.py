"""Which GPU libraries a TensorFlow loads, which compiler made it, which C++ ABI it speaks.

Up to 1.13 the GPU libraries are ``DT_NEEDED``. From 1.14 on each is opened when first used, by a
function ``stream_executor::internal::DsoLoader::GetCudnnDsoHandle()`` that is exported and does
nothing but name the library and its version, two constant strings; a CPU build has the same
functions with an empty version (and "1" for the driver, which it never opens). The compiler is what
``tf_compiler_version()`` returns, the source of ``tf.version.COMPILER_VERSION``.
"""

import re

from imgbuild.audit.elf import Elf, ElfError

#: The part of a function's name, and the library that it opens.
_OPENED = {
    "CudaDriver": "cuda",
    "CudaRuntime": "cudart",
    "Cublas": "cublas",
    "Cudnn": "cudnn",
    "Cufft": "cufft",
    "Cupti": "cupti",
    "Curand": "curand",
    "Cusolver": "cusolver",
    "Cusparse": "cusparse",
    "NvInfer": "nvinfer",
    "NvInferPlugin": "nvinfer_plugin",
}
_HANDLE = re.compile(rb"_ZN15stream_executor8internal9DsoLoader\d+Get([A-Za-z]+)DsoHandleEv")
_GPU = "cuda|cudart|cublas|cudnn|cufft|cupti|curand|cusolver|cusparse|nvinfer|nvinfer_plugin|nccl"
_GPU_SONAME = re.compile(rf"lib(?:{_GPU})\.so(?:\.[0-9]+)*")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_SONAME_IN_TABLE = re.compile(rb"\0(lib[a-zA-Z_+-]+\.so(?:\.[0-9]+)*)(?=\0)")
_COMPILER = b"_Z19tf_compiler_versionv"
_OWN = re.compile(rb"_ZNK?10tensorflow")
#: gcc writes "7.3.1 20180303"; the matrix has the version alone.
_COMPILER_VERSION = re.compile(r"([0-9]+\.[0-9]+\.[0-9]+)( [0-9]+)?.*")


def has_loader(library: Elf) -> bool:
    """Whether GPU libraries are opened by functions that name them: TensorFlow 1.14 and later."""
    return any(_HANDLE.fullmatch(symbol.name) for symbol in library.exported)


def opened(library: Elf) -> tuple[str, ...]:
    """Return the GPU libraries that its DsoLoader opens, such as ``libcudart.so.10.1``, sorted."""
    versions: dict[str, str] = {}
    for symbol in library.exported:
        match = _HANDLE.fullmatch(symbol.name)
        name = _OPENED.get(match[1].decode()) if match else None
        version = next((s for s in library.strings_of(symbol) if _VERSION.fullmatch(s)), None)
        if name and version:
            versions[name] = version
    if set(versions) == {"cuda"}:  # a CPU build: the driver's name is there, nobody asks for it
        return ()
    return tuple(sorted(f"lib{name}.so.{version}" for name, version in versions.items()))


def gpu_libraries(sonames: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the libraries that are CUDA's, cuDNN's, NCCL's or TensorRT's, sorted."""
    return tuple(sorted({name for name in sonames if _GPU_SONAME.fullmatch(name)}))


def sonames_in(beginning: bytes) -> tuple[str, ...]:
    """Return the library names in the string table at a library's beginning."""
    return tuple(name.decode() for name in _SONAME_IN_TABLE.findall(beginning))


def string_table_seen(beginning: bytes) -> bool:
    """Whether a library's beginning reaches past its string table.

    The linker adds the C library's name and its versions last of all.
    """
    return b"\0libc.so.6\0" in beginning and b"\0GLIBC_2." in beginning


def compiler_of(library: Elf) -> str:
    """Return the version of the compiler that the library reports, such as ``7.3.1``.

    Raises:
        ElfError: it exports no ``tf_compiler_version``, or that returns no version.

    """
    for symbol in library.exported:
        if symbol.name == _COMPILER:
            for text in library.strings_of(symbol):
                match = _COMPILER_VERSION.fullmatch(text)
                if match:
                    return match[1]
    raise ElfError("no compiler version in tf_compiler_version()")


def cxx11_abi_of(library: Elf) -> int:
    """Return 1 if TensorFlow's own exported functions take ``std::__cxx11`` strings, else 0.

    Only names in the namespace ``tensorflow`` count: parts of libstdc++ that the compiler linked in
    are of both kinds.
    """
    own = [symbol.name for symbol in library.exported if _OWN.match(symbol.name)]
    if not own:
        raise ElfError("exports nothing of the namespace tensorflow")
    return int(any(b"__cxx11" in name for name in own))
