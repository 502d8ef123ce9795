"""Read the facts of a TensorFlow wheel on a server: some megabytes of it, and none of it is run.

Up to TensorFlow 1.13 the GPU libraries are ``DT_NEEDED``. From 1.14 on each is opened when first
used, by a function ``stream_executor::internal::DsoLoader::GetCudnnDsoHandle()`` that is exported
and only names the library and its version, two constant strings; a CPU build has the same functions
with an empty version (and "1" for the driver, which it never opens). The compiler is what
``tf_compiler_version()`` returns, the source of ``tf.version.COMPILER_VERSION``.
"""

import ast
import io
import re
import struct
import zipfile
from email import message_from_bytes
from functools import cached_property
from typing import Any, NamedTuple

from imgbuild.audit.facts import WheelFacts
from imgbuild.errors import MachineError
from imgbuild.http import HttpClient, shown

#: One request of this many bytes; a wheel has up to 500 MB, of which some MB are read.
_BLOCK = 1 << 20
#: How much of ``_pywrap_tensorflow_internal.so`` is unpacked at most: its string table ends at 25.
_MOST = 160 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_PARTIAL = 206
_FRAMEWORK = tuple(f"/libtensorflow_framework.so{end}" for end in ("", ".1", ".2"))
_INTERNAL = "/python/_pywrap_tensorflow_internal.so"
_BUILD_INFO = "/python/platform/build_info.py"

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
_HANDLE = re.compile(r"_ZN15stream_executor8internal9DsoLoader\d+Get([A-Za-z]+)DsoHandleEv")
_GPU = "cuda|cudart|cublas|cudnn|cufft|cupti|curand|cusolver|cusparse|nvinfer|nvinfer_plugin|nccl"
_GPU_SONAME = re.compile(rf"lib(?:{_GPU})\.so(?:\.[0-9]+)*")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_SONAME_IN_TABLE = re.compile(rb"\0(lib[a-zA-Z_+-]+\.so(?:\.[0-9]+)*)(?=\0)")
_GLIBC = re.compile(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)")
_COMPILER = "_Z19tf_compiler_versionv"
_OWN = re.compile(r"_ZNK?10tensorflow")
#: gcc writes "7.3.1 20180303"; the matrix has the version alone.
_COMPILER_VERSION = re.compile(r"([0-9]+\.[0-9]+\.[0-9]+)( [0-9]+)?.*")
#: ``lea register, [rip + distance]``: how code on x86-64 takes the address of a string.
_LEA = re.compile(rb"[\x48-\x4f]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](....)", re.DOTALL)
#: A function that takes a string's address and returns is a dozen bytes, some without a size.
_SHORT = 16


class RemoteFile(io.RawIOBase):
    """A file at an address, read by ranges. Python's zipfile reads an archive through it.

    ``size`` is the file's; ``bytes_read`` counts what was transferred.
    """

    def __init__(self, client: HttpClient, url: str) -> None:
        self.url = url
        self.bytes_read = 0
        self._client = client
        self._position = 0
        self.size = 1
        _, self.size = self._range(0, 1)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that any place can be read."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the place of the next read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Fill the buffer by one request."""
        length = min(len(buffer), self.size - self._position)
        if length <= 0:
            return 0
        content, _ = self._range(self._position, length)
        buffer[:length] = content
        self._position += length
        return length

    def _range(self, start: int, length: int) -> tuple[bytes, int]:
        """Return exactly these bytes, and the size of the file."""
        end = start + length - 1
        headers = {"Range": f"bytes={start}-{end}"}
        answer = self._client.get(self.url, headers, limit=length + _BLOCK)
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        right = match and (int(match[1]), int(match[2])) == (start, end)
        if answer.status != _PARTIAL or not match or not right or len(answer.body) != length:
            hint = " It ignores ranges; name an index that does not." * (answer.status == 200)
            raise MachineError(
                f"{shown(self.url)}: for bytes {start}-{end} the server answered {answer.status} "
                f"with {len(answer.body)} bytes.{hint}"
            )
        self.bytes_read += length
        return answer.body, int(match[3])


class Symbol(NamedTuple):
    """A function or variable that a library exports: address and size in memory."""

    name: str
    address: int
    size: int


class Library:
    """A shared library: what it needs, what it exports, which strings its functions name."""

    def __init__(self, content: bytes) -> None:
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - only an audit needs it

        self._elf: Any = ELFFile(io.BytesIO(content))
        self._text, self._data = self._section(".text"), self._section(".rodata")

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The libraries without which it cannot be loaded (``DT_NEEDED``)."""
        section = self._elf.get_section_by_name(".dynamic")
        return tuple(tag.needed for tag in section.iter_tags("DT_NEEDED")) if section else ()

    @cached_property
    def exported(self) -> tuple[Symbol, ...]:
        """The symbols that it defines for others."""
        section = self._elf.get_section_by_name(".dynsym")
        return tuple(
            Symbol(one.name, one["st_value"], one["st_size"])
            for one in (section.iter_symbols() if section else ())
            if one["st_shndx"] != "SHN_UNDEF"
        )

    @cached_property
    def glibc(self) -> str:
        """The newest C library version that its symbols ask for, such as ``2.17``."""
        names = _GLIBC.findall(self._section(".dynstr")[1])
        found = {tuple(map(int, one.split(b"."))) for one in names}
        return ".".join(map(str, max(found, default=(0,))))

    def strings_of(self, symbol: Symbol) -> list[str]:
        """Return the constant strings whose addresses a function takes, in its order."""
        (text_address, text), (data_address, data) = self._text, self._data
        start = symbol.address - text_address
        code = text[start : start + (symbol.size or _SHORT)]
        places = [
            symbol.address + match.end() + struct.unpack("<i", match[1])[0] - data_address
            for match in _LEA.finditer(code)
        ]
        inside = [place for place in places if 0 <= place < len(data)]
        return [data[at : data.find(b"\0", at)].decode("ascii", "replace") for at in inside]

    def _section(self, name: str) -> tuple[int, bytes]:
        """Return the address and the content of a section."""
        section = self._elf.get_section_by_name(name)
        return (section["sh_addr"], section.data()) if section else (0, b"")


def read_wheel(remote: RemoteFile, file: str, sha256: str) -> WheelFacts:
    """Return what the wheel is.

    Raises:
        MachineError: the server gives no ranges, or it is no wheel of TensorFlow, or damaged.

    """
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - only an audit needs it

    try:
        with zipfile.ZipFile(io.BufferedReader(remote, _BLOCK)) as wheel:
            return _facts(wheel, remote.size, file, sha256)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, struct.error) as error:
        raise MachineError(f"{shown(remote.url)} is no wheel, or damaged: {error}.") from error
    except (ELFError, ValueError, LookupError) as error:
        raise MachineError(f"{shown(remote.url)} is no wheel of TensorFlow: {error}.") from error


def _facts(wheel: zipfile.ZipFile, size: int, file: str, sha256: str) -> WheelFacts:
    metadata = message_from_bytes(wheel.read(_member(wheel, ".dist-info/METADATA")))
    tags = message_from_bytes(wheel.read(_member(wheel, ".dist-info/WHEEL")))
    built = _build_info(wheel)
    library = Library(wheel.read(_member(wheel, *_FRAMEWORK)))
    libraries, loading = _gpu_libraries(wheel, library)
    cuda_build = built.get("is_cuda_build")
    return WheelFacts(
        sha256=sha256,
        file=file,
        size=size,
        name=str(metadata["Name"]),
        version=str(metadata["Version"]),
        tags=tuple(str(tag) for tag in tags.get_all("Tag", [])),
        libraries=libraries,
        loading=loading if libraries else "none",
        cuda_build=cuda_build if isinstance(cuda_build, bool) else None,
        capabilities=tuple(map(str, built.get("cuda_compute_capabilities", ()))),
        compiler=_compiler(library),
        cxx11_abi=_cxx11_abi(library),
        glibc=library.glibc,
    )


def _member(wheel: zipfile.ZipFile, *ends: str) -> str:
    """Return the first member whose path ends in one of ``ends``, in their order."""
    for end in ends:
        for name in wheel.namelist():
            if name.endswith(end):
                return name
    raise LookupError(f"it has no {ends[0]}")


def _gpu_libraries(wheel: zipfile.ZipFile, library: Library) -> tuple[tuple[str, ...], str]:
    """Return the GPU libraries that TensorFlow loads, and when it does."""
    handles = {one: _HANDLE.fullmatch(one.name) for one in library.exported}
    loader = {one: match[1] for one, match in handles.items() if match}
    if not loader:
        names = {*library.needed, *_sonames(wheel, _member(wheel, _INTERNAL))}
        return tuple(sorted(name for name in names if _GPU_SONAME.fullmatch(name))), "needed"
    versions = {}
    for symbol, part in loader.items():
        strings = library.strings_of(symbol)
        version = next((one for one in strings if _VERSION.fullmatch(one)), None)
        if part in _OPENED and version:
            versions[_OPENED[part]] = version
    if set(versions) == {"cuda"}:  # a CPU build: it has the driver's name, and never opens it
        return (), "opened"
    return tuple(sorted(f"lib{name}.so.{one}" for name, one in versions.items())), "opened"


def _sonames(wheel: zipfile.ZipFile, member: str) -> set[str]:
    """Return the library names in the string table at a library's beginning.

    The linker adds the C library's name and its versions last of all.
    """
    beginning = b""
    with wheel.open(member) as stream:
        while len(beginning) < _MOST and (piece := stream.read(_BLOCK)):
            beginning += piece
            if b"\0libc.so.6\0" in beginning and b"\0GLIBC_2." in beginning:
                break
    return {name.decode() for name in _SONAME_IN_TABLE.findall(beginning)}


def _compiler(library: Library) -> str:
    """Return the version of the compiler that the library reports, such as ``7.3.1``."""
    for symbol in library.exported:
        for text in library.strings_of(symbol) if symbol.name == _COMPILER else ():
            match = _COMPILER_VERSION.fullmatch(text)
            if match:
                return match[1]
    raise LookupError("libtensorflow_framework.so has no compiler in tf_compiler_version()")


def _cxx11_abi(library: Library) -> int:
    """Return 1 if TensorFlow's own exported functions take ``std::__cxx11`` strings, else 0.

    Only names in the namespace ``tensorflow`` count: parts of libstdc++ that the compiler linked in
    are of both kinds.
    """
    own = [symbol.name for symbol in library.exported if _OWN.match(symbol.name)]
    if not own:
        raise LookupError("libtensorflow_framework.so exports nothing of the namespace tensorflow")
    return int(any("__cxx11" in name for name in own))


def _build_info(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the constants of ``build_info.py``: assignments up to 2.2, one mapping from 2.3 on."""
    name = next((one for one in wheel.namelist() if one.endswith(_BUILD_INFO)), None)
    source = wheel.read(name).decode("utf-8", "replace") if name else ""
    values = {}
    for key, text in re.findall(r"^(\w+) = (.+)$", source, re.MULTILINE):
        try:
            values[key] = ast.literal_eval(text)  # read as text, never executed
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    nested = values.get("build_info")
    return nested if isinstance(nested, dict) else values
