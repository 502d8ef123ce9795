"""Read the facts of TensorFlow's wheels from a few MB of each, without running their code.

Up to TensorFlow 1.13, GPU libraries are ``DT_NEEDED``. From 1.14 on, an exported function like
``stream_executor::internal::DsoLoader::GetCudnnDsoHandle()`` opens each library on first use. The
function only contains the library's name and version as two constant strings. A CPU build has the
same functions with an empty version, and "1" for the driver, which it never opens. From 2.9 on, the
version is in the code itself.

The compiler, ``tf.version.COMPILER_VERSION``, is the result of ``tf_compiler_version()``, and so a
constant in ``libtensorflow_framework.so``. From 2.9 on, it is one in ``_pywrap_tf_session.so``.
"""

import ast
import io
import re
import struct
import zipfile
import zlib
from email import message_from_bytes
from typing import IO, Any

from packaging.version import Version

from imgbuild.core.errors import MachineError
from imgbuild.core.unpacking import open_member, read_member
from imgbuild.maintain.package_index import BLOCK, RemoteFile
from imgbuild.matrix.evidence import WheelFacts, WheelTag
from imgbuild.net.addresses import redact

#: Bytes per request if a library is read to its end.
_LARGE_BLOCK = 16 << 20
#: Maximum unpacked bytes of ``_pywrap_tensorflow_internal.so``; its string table ends at 25 MB.
_MOST = 160 << 20
#: Limits for unpacked data in bytes: for a text, a library that is read at once, and a library that
#: is read in pieces. TensorFlow 1.4 to 2.21 has at most 5 kB, 165 MB and 1.3 GB.
_TEXT_LIMIT, _LIBRARY_LIMIT, _STREAM_LIMIT = 4 << 20, 512 << 20, 4 << 30
_FRAMEWORK = tuple(f"/libtensorflow_framework.so{end}" for end in ("", ".1", ".2"))
_INTERNAL = ("/python/_pywrap_tensorflow_internal.so",)
_BUILD_INFO = "/python/platform/build_info.py"
_SESSION = "/python/client/_pywrap_tf_session.so"

_GPU = "cuda|cudart|cublas|cudnn|cufft|cupti|curand|cusolver|cusparse|nvinfer|nvinfer_plugin|nccl"
_GPU_SONAME = re.compile(rf"lib(?:{_GPU})\.so(?:\.[0-9]+)*")
_HANDLE = re.compile(r"_ZN(?:15stream_executor|3tsl)8internal9DsoLoader\d+Get(\w+)DsoHandleEv")
#: The libraries whose functions have another name.
_OPENED = {"CudaDriver": "cuda", "CudaRuntime": "cudart", "NvInferPlugin": "nvinfer_plugin"}
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_SONAME_IN_TABLE = re.compile(rb"\0(lib[a-zA-Z_+-]+\.so(?:\.[0-9]+)*)(?=\0)")
_GLIBC = re.compile(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)")
_COMPILER = "_Z19tf_compiler_versionv"
_OWN = re.compile(r"_ZNK?10tensorflow")
#: gcc writes "7.3.1 20180303", but the matrix only has the version.
_COMPILER_VERSION = re.compile(r"([0-9]+\.[0-9]+\.[0-9]+)( [0-9]+)?.*")
#: The compiler as a constant in a library: ``9.3.1 20200408``, ``10.2.1 20210130 (Red Hat 10…``,
#: ``Ubuntu Clang 17.0.2 (++2023…``, and from 2.21 on ``Clang 18.1.8``.
_COMPILER_CONSTANT = re.compile(
    rb"\0(?:[A-Za-z ]*(Clang) )?(\d+\.\d+\.\d+)(?: \d{8}(?:\0| \()| \(|(?(1)\0|(?!)))"
)
#: ``mov register, text`` and ``mov [rbp + distance], text``, which create a text of up to 4 bytes.
_MOV = re.compile(rb"(?:[\xb8-\xbf]|\xc7[\x40-\x47].)([0-9][0-9.]{0,3})", re.DOTALL)
#: ``lea register, [rip + distance]``, which loads the address of a string on x86-64.
_LEA = re.compile(rb"[\x48-\x4f]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](....)", re.DOTALL)
#: An entry of a fat binary, one per capability. It begins with its kind (1: PTX, 2: machine code),
#: a version and the size of its header. The capability follows 24 bytes later, as 70 for 7.0.
#: Source: fatbinary.h, and the output of cuobjdump for the same wheels.
_ENTRY = re.compile(rb"([\x01\x02])\0\x01\x01[\x40-\xa0]\0\0\0.{20}([\x1e-\x7f])\0\0\0", re.DOTALL)
#: Bytes of an entry, which may begin at the end of a piece, and bytes of a piece.
_ENTRY_BYTES, PIECE = 32, 4 << 20
#: The errors raised for a file that is not a wheel of TensorFlow.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, struct.error, ValueError, LookupError),
    *(ArithmeticError, AttributeError, TypeError),  # pyelftools raises them for wrong sections
    RuntimeError,  # the archive is encrypted, or has an unknown compression
)
#: Size to assume for a function without a size: loading a string's address takes a dozen bytes.
_SHORT = 16


class Library:
    """A shared library: its dependencies, its exported symbols, and strings in its functions."""

    def __init__(self, content: bytes) -> None:
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - only an audit needs it

        elf = ELFFile(io.BytesIO(content))
        sections: dict[str, Any] = {section.name: section for section in elf.iter_sections()}
        for name in (".text", ".rodata", ".dynamic", ".dynsym", ".dynstr"):
            # For such a section, pyelftools allocates as many bytes as its header says.
            if sections[name].compressed or sections[name]["sh_type"] == "SHT_NOBITS":
                raise ValueError(f"the section {name} is compressed or empty")
        text, data = sections[".text"], sections[".rodata"]
        #: Whether its code is for x86-64, the only one whose instructions `strings_of` knows.
        self.is_x86_64 = elf["e_machine"] == "EM_X86_64"
        self._text = (text["sh_addr"], text.data())
        #: Its constants.
        self.constants: bytes = data.data()
        self._data = (data["sh_addr"], self.constants)
        #: The libraries needed to load it.
        self.needed = {tag.needed for tag in sections[".dynamic"].iter_tags("DT_NEEDED")}
        #: Address and size of its exported symbols.
        self.exported: dict[str, tuple[int, int]] = {}
        for symbol in sections[".dynsym"].iter_symbols():
            if symbol["st_shndx"] != "SHN_UNDEF":
                self.exported[symbol.name] = (symbol["st_value"], symbol["st_size"])
        names = sections[".dynstr"].data()
        versions = [version.decode() for version in _GLIBC.findall(names)]
        #: The newest glibc version that its symbols require, for example ``2.17``.
        self.glibc = max(versions, key=Version, default="0")

    def strings_of(self, function: str) -> list[str]:
        """Return the strings whose addresses a function loads, or the number in its code.

        MachineError: the library is for another machine than x86-64.
        """
        if not self.is_x86_64:
            raise MachineError(
                f"The strings of {function} cannot be read, because this library is not for "
                "x86-64. The facts of such a wheel can only be read if its build_info.py says that "
                "it was built without CUDA."
            )
        (text_address, text), (data_address, data) = self._text, self._data
        address, size = self.exported[function]
        start = address - text_address
        code = text[start : start + (size or _SHORT)]
        strings = []
        for match in _LEA.finditer(code):
            (distance,) = struct.unpack("<i", match[1])
            offset = address + match.end() + distance - data_address
            if 0 <= offset < len(data):
                strings.append(data[offset : data.find(b"\0", offset)])
        if not strings:
            strings.append(b"".join(_MOV.findall(code)))
        return [string.decode("ascii", "replace") for string in strings]


def read_wheel(
    remote: RemoteFile, file: str, sha256: str, pythons: tuple[WheelTag, ...]
) -> WheelFacts:
    """Read the facts of a wheel; ``pythons`` are the Pythons with wheels of its release.

    MachineError: the server does not support ranges, or the file is not a TensorFlow wheel.
    """
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - only an audit needs it

    try:
        with zipfile.ZipFile(io.BufferedReader(remote, BLOCK)) as wheel:
            known = {"sha256": sha256, "file": file, "size": remote.size, "pythons": pythons}
            known |= _read_facts(wheel)
            facts = WheelFacts.model_validate(known)
        if facts.libraries and not facts.capabilities:
            return facts.model_copy(update={"capabilities": _read_capabilities(remote)})
    except (*_DAMAGE, ELFError) as error:
        where = redact(remote.url)
        raise MachineError(f"{where} is not a TensorFlow wheel, or damaged: {error}.") from error
    return facts


def _read_facts(wheel: zipfile.ZipFile) -> dict[str, Any]:
    metadata = message_from_bytes(_read_text(wheel, ".dist-info/METADATA"))
    tags = message_from_bytes(_read_text(wheel, ".dist-info/WHEEL"))
    built = _read_build_info(wheel)
    framework = _find_member(wheel, *_FRAMEWORK)
    library = Library(read_member(wheel, framework, _LIBRARY_LIMIT))
    cuda_build = built.get("is_cuda_build")
    libraries, loading = set[str](), "none"
    if library.is_x86_64 or cuda_build is not False:
        libraries, loading = _find_gpu_libraries(wheel, library)
    cuda = str(built.get("cuda_version", ""))
    capabilities = built.get("cuda_compute_capabilities", ())
    return {
        "name": str(metadata["Name"]),
        "version": str(metadata["Version"]),
        "tags": tuple(str(tag) for tag in tags.get_all("Tag", [])),
        "libraries": tuple(sorted(libraries)),
        "loading": loading if libraries else "none",
        "cuda_build": cuda_build if isinstance(cuda_build, bool) else None,
        "cuda": _cuda_release(libraries, cuda),
        "capabilities": tuple(map(str, capabilities)),
        "compiler": _read_compiler(wheel, library),
        "cxx11_abi": _detect_cxx11_abi(library),
        "glibc": library.glibc,
    }


def _read_capabilities(remote: RemoteFile) -> tuple[str, ...]:
    """Return the compute capabilities of the kernels; up to 2.2, only the library has them."""
    again = RemoteFile(remote.client, remote.url)
    with (
        zipfile.ZipFile(io.BufferedReader(again, _LARGE_BLOCK)) as wheel,
        open_member(wheel, _find_member(wheel, *_INTERNAL)) as library,
    ):
        capabilities = compute_capabilities(library)
    remote.bytes_read += again.bytes_read
    if not capabilities:
        raise LookupError("it loads CUDA and has no GPU code")
    return capabilities


def compute_capabilities(library: IO[bytes]) -> tuple[str, ...]:
    """Return the compute capabilities as in build_info.py: ``sm_70``, or ``compute_70`` with PTX.

    ValueError: the library is larger than any library of TensorFlow.
    """
    native, ptx = set[int](), set[int]()
    end, size = b"", 0
    while piece := library.read(PIECE):
        size += len(piece)
        if size > _STREAM_LIMIT:
            raise ValueError(f"{_INTERNAL[0]} unpacks to more than {_STREAM_LIMIT:,} bytes")
        for entry in _ENTRY.finditer(end + piece):
            kind = ptx if entry[1] == b"\1" else native
            kind.add(entry[2][0])
        end = piece[1 - _ENTRY_BYTES :]
    capabilities = []
    for number in sorted(native | ptx):
        prefix = "compute" if number in ptx else "sm"
        capabilities.append(f"{prefix}_{number}")
    return tuple(capabilities)


def _find_member(wheel: zipfile.ZipFile, *ends: str) -> str:
    """Return the first member whose path ends in one of ``ends``, tried in order."""
    for end in ends:
        for name in wheel.namelist():
            if name.endswith(end):
                return name
    raise LookupError(f"it has no {ends[0]}")


def _read_text(wheel: zipfile.ZipFile, end: str) -> bytes:
    """Return the content of the first member whose path ends in ``end``."""
    return read_member(wheel, _find_member(wheel, end), _TEXT_LIMIT)


def _find_gpu_libraries(wheel: zipfile.ZipFile, library: Library) -> tuple[set[str], str]:
    """Return the GPU libraries that TensorFlow loads, and "needed" or "opened" for when."""
    handles = [match for match in map(_HANDLE.fullmatch, library.exported) if match]
    if not handles:
        names = library.needed | _read_sonames(wheel)
        return {name for name in names if _GPU_SONAME.fullmatch(name)}, "needed"
    versions = {}
    for handle in handles:
        function, title = handle.group(0, 1)
        name = _OPENED.get(title, title.lower())
        numbers = [text for text in library.strings_of(function) if _VERSION.fullmatch(text)]
        if name in _GPU.split("|") and numbers:
            versions[name] = numbers[0]
    # A CPU build contains the driver's name, and 2.9 also TensorRT's, but it opens neither.
    if "cudart" not in versions:
        return set(), "opened"
    return {f"lib{name}.so.{version}" for name, version in versions.items()}, "opened"


def _cuda_release(libraries: set[str], said: str) -> str:
    """Return the CUDA release, from build_info.py for CUDA 11 and newer.

    From 11 on, libraries of all minor releases have the same name. For older releases,
    build_info.py is not reliable: in TensorFlow 2.2 it says 10, but 2.2 loads 10.1.
    """
    start = "libcudart.so."
    versions = [name.removeprefix(start) for name in libraries if name.startswith(start)]
    loaded = versions[0] if versions else ""
    recent = loaded and Version(loaded) >= Version("11")
    if recent and _VERSION.fullmatch(said):
        return said
    return loaded


def _read_sonames(wheel: zipfile.ZipFile) -> set[str]:
    """Return the library names in the string table at the beginning of TensorFlow's library.

    The linker adds the C library's name and versions last, so reading stops there.
    """
    beginning = b""
    with open_member(wheel, _find_member(wheel, *_INTERNAL)) as stream:
        while len(beginning) < _MOST and (piece := stream.read(BLOCK)):
            beginning += piece
            if b"\0libc.so.6\0" in beginning and b"\0GLIBC_2." in beginning:
                break
    return {name.decode() for name in _SONAME_IN_TABLE.findall(beginning)}


def _read_compiler(wheel: zipfile.ZipFile, library: Library) -> str:
    """Return the compiler that TensorFlow reports, for example ``7.3.1`` or ``clang-17.0.2``."""
    if _COMPILER in library.exported and library.is_x86_64:
        for text in library.strings_of(_COMPILER):
            if match := _COMPILER_VERSION.fullmatch(text):
                return match[1]
        raise LookupError("libtensorflow_framework.so has no compiler in tf_compiler_version()")
    name, constants = "libtensorflow_framework.so", library.constants
    if _COMPILER not in library.exported:
        name = "_pywrap_tf_session.so"
        constants = read_member(wheel, _find_member(wheel, _SESSION), _LIBRARY_LIMIT)
    if constant := _COMPILER_CONSTANT.search(constants):
        version = constant[2].decode()
        return f"clang-{version}" if constant[1] else version
    raise LookupError(f"{name} names no compiler")


def _detect_cxx11_abi(library: Library) -> int:
    """Return 1 if TensorFlow's own exported functions take ``std::__cxx11`` strings, else 0.

    Only names in the namespace ``tensorflow`` count, because linked parts of libstdc++ have both
    kinds.
    """
    own = [name for name in library.exported if _OWN.match(name)]
    if not own:
        raise LookupError("libtensorflow_framework.so exports nothing of the namespace tensorflow")
    return int(any("__cxx11" in name for name in own))


def _read_build_info(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the constants in ``build_info.py``.

    Up to 2.2 they are assignments, and from 2.3 on one mapping. From 2.4 on, the mapping is
    ``collections.OrderedDict([…])``.
    """
    source = ""
    if any(name.endswith(_BUILD_INFO) for name in wheel.namelist()):
        source = _read_text(wheel, _BUILD_INFO).decode("utf-8", "replace")
    values = {}
    line = re.compile(r"^(\w+) = (?:collections\.OrderedDict)?(.+)$", re.MULTILINE)
    for key, text in line.findall(source):
        try:
            values[key] = ast.literal_eval(text)  # read as text, never executed
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    try:
        return dict(values.get("build_info", values))
    except (TypeError, ValueError):
        return {}
