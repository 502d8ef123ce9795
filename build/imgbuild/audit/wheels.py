"""Read the package index, and the facts of TensorFlow's wheels: some MB of each, none of it run.

Up to TensorFlow 1.13 the GPU libraries are ``DT_NEEDED``. From 1.14 on each is opened when first
used, by a function ``stream_executor::internal::DsoLoader::GetCudnnDsoHandle()`` that is exported
and only names the library and its version, two constant strings; a CPU build has the same functions
with an empty version (and "1" for the driver, which it never opens). From 2.9 on the version is in
the code itself. The compiler, ``tf.version.COMPILER_VERSION``, is what ``tf_compiler_version()``
returns, and from 2.9 on a constant of ``_pywrap_tf_session.so``.
"""

import ast
import io
import re
import struct
import zipfile
from email import message_from_bytes
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.version import Version
from uv import find_uv_bin

from imgbuild.audit.compare import OfferedFile, WheelFacts
from imgbuild.dockerfile.requirements import index_environment
from imgbuild.errors import InputError, MachineError
from imgbuild.http import HttpClient, shown
from imgbuild.process import run
from imgbuild.settings import Sites

#: One request of this many bytes; a wheel has up to 500 MB, of which some MB are read.
_BLOCK = 1 << 20
#: How much of ``_pywrap_tensorflow_internal.so`` is unpacked at most: its string table ends at 25.
_MOST = 160 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_FRAMEWORK = tuple(f"/libtensorflow_framework.so{end}" for end in ("", ".1", ".2"))
_INTERNAL = ("/python/_pywrap_tensorflow_internal.so",)
_BUILD_INFO = "/python/platform/build_info.py"
_SESSION = "/python/client/_pywrap_tf_session.so"

_GPU = "cuda|cudart|cublas|cudnn|cufft|cupti|curand|cusolver|cusparse|nvinfer|nvinfer_plugin|nccl"
_GPU_SONAME = re.compile(rf"lib(?:{_GPU})\.so(?:\.[0-9]+)*")
_HANDLE = re.compile(r"_ZN(?:15stream_executor|3tsl)8internal9DsoLoader\d+Get(\w+)DsoHandleEv")
#: The libraries whose functions are not called as they are.
_OPENED = {"CudaDriver": "cuda", "CudaRuntime": "cudart", "NvInferPlugin": "nvinfer_plugin"}
#: What the help of uv says of ``--default-index``.
_DEFAULT = re.compile(r"default package index\s+\(by\s+default:\s+<(https://\S+?)>\)")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_SONAME_IN_TABLE = re.compile(rb"\0(lib[a-zA-Z_+-]+\.so(?:\.[0-9]+)*)(?=\0)")
_GLIBC = re.compile(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)")
_COMPILER = "_Z19tf_compiler_versionv"
_OWN = re.compile(r"_ZNK?10tensorflow")
#: gcc writes "7.3.1 20180303"; the matrix has the version alone.
_COMPILER_VERSION = re.compile(r"([0-9]+\.[0-9]+\.[0-9]+)( [0-9]+)?.*")
#: The same as a constant of a library: ``9.3.1 20200408``, ``Ubuntu Clang 17.0.2 (++2023…``.
_COMPILER_CONSTANT = re.compile(rb"\0(?:[A-Za-z ]*(Clang) )?(\d+\.\d+\.\d+) (?:\d{8}\0|\()")
#: ``mov register, text`` and ``mov [rbp + distance], text``: how a text of up to 4 bytes is made.
_MOV = re.compile(rb"(?:[\xb8-\xbf]|\xc7[\x40-\x47].)([0-9][0-9.]{0,3})", re.DOTALL)
#: ``lea register, [rip + distance]``: how code on x86-64 takes the address of a string.
_LEA = re.compile(rb"[\x48-\x4f]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](....)", re.DOTALL)
#: What reading something else than such a wheel ends in.
_DAMAGE = (zipfile.BadZipFile, NotImplementedError, EOFError, struct.error, ValueError, LookupError)
#: A function that takes a string's address and returns is a dozen bytes, some without a size.
_SHORT = 16


def index_url(sites: Sites) -> str:
    """Return the index: the mirror, else that of uv's and pip's variables, else uv's default.

    InputError: the address is none. Only the help of uv says its default; uv's version is pinned.
    """
    environment = index_environment(sites)
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    url = next((environment[name] for name in names if environment.get(name)), "")
    if not url:
        told = _DEFAULT.search(run([find_uv_bin(), "pip", "compile", "--help"], timeout=10).output)
        if told is None:
            raise InputError("No package index is named: set UV_DEFAULT_INDEX.")
        url = told[1]
    try:
        urlsplit(url)
    except ValueError as error:  # the address is not quoted: it may hold a login
        named = ", ".join(names)
        raise InputError(f"The package index of {named}: {error}. Correct it.") from error
    return url.rstrip("/")


def read_project(client: HttpClient, index: str, name: str) -> dict[str, OfferedFile]:
    """Return the files of a project by name; none if the index has no such project.

    The page is read as HTML (PEP 503), the form that every index has. It is a MachineError if the
    index does not answer, or not with a list of files.
    """
    answer = client.get(f"{index}/{name}/", {"Accept": "text/html"})
    if answer.status in {404, 410}:
        return {}
    files = _files(answer.url, answer.body.decode("utf-8", "replace"))
    if answer.status != 200 or not files:
        kind = answer.headers.get("Content-Type", "no content type")
        raise MachineError(
            f"{shown(answer.url)} answers {answer.status} with {kind}, and lists no file (PEP 503)."
        )
    return {file.name: file for file in files}


def _files(base: str, page: str) -> list[OfferedFile]:
    links: list[dict[str, str | None]] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend([dict(attrs)] if tag == "a" else [])

    Links().feed(page)
    files = []
    for link in links:
        url, fragment = urldefrag(urljoin(base, link.get("href") or ""))
        algorithm, _, digest = fragment.partition("=")
        yanked = (link["data-yanked"] or "no reason given") if "data-yanked" in link else None
        if algorithm == "sha256":
            name = unquote(urlsplit(url).path.rpartition("/")[2])
            files.append(OfferedFile(name, url, digest, yanked))
    return files


class RemoteFile(io.RawIOBase):
    """A file at an address, read by ranges. Python's zipfile reads an archive through it.

    ``size`` is the file's; ``bytes_read`` counts what was transferred.
    """

    def __init__(self, client: HttpClient, url: str) -> None:
        self.url = url
        self.bytes_read = 0
        self._client = client
        self._position = 0
        _, self.size = self._range(0, 1)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Fill the buffer by one request."""
        length = min(len(buffer), self.size - self._position)
        if length <= 0:
            return 0
        buffer[:length], _ = self._range(self._position, length)
        self._position += length
        return length

    def _range(self, start: int, length: int) -> tuple[bytes, int]:
        """Return exactly these bytes, and the size of the file."""
        end = start + length - 1
        headers = {"Range": f"bytes={start}-{end}"}
        answer = self._client.get(self.url, headers, limit=length + _BLOCK)
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        right = match and (int(match[1]), int(match[2])) == (start, end)
        if answer.status != 206 or not match or not right or len(answer.body) != length:
            hint = " It ignores ranges; name an index that does not." * (answer.status == 200)
            raise MachineError(
                f"{shown(self.url)}: for bytes {start}-{end} the server answered {answer.status} "
                f"with {len(answer.body)} bytes.{hint}"
            )
        self.bytes_read += length
        return answer.body, int(match[3])


class Library:
    """A shared library: what it needs, what it exports, which strings its functions name."""

    def __init__(self, content: bytes) -> None:
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - only an audit needs it

        sections: dict[str, Any] = {
            one.name: one for one in ELFFile(io.BytesIO(content)).iter_sections()
        }
        self._text, self._data = (
            (sections[name]["sh_addr"], sections[name].data()) for name in (".text", ".rodata")
        )
        #: The libraries without which it cannot be loaded.
        self.needed = {tag.needed for tag in sections[".dynamic"].iter_tags("DT_NEEDED")}
        #: Address and size of the symbols that it defines for others.
        self.exported = {
            one.name: (one["st_value"], one["st_size"])
            for one in sections[".dynsym"].iter_symbols()
            if one["st_shndx"] != "SHN_UNDEF"
        }
        asked = [one.decode() for one in _GLIBC.findall(sections[".dynstr"].data())]
        #: The newest C library version that its symbols ask for, such as ``2.17``.
        self.glibc = max(asked, key=Version, default="0")

    def strings_of(self, function: str) -> list[str]:
        """Return the strings whose addresses a function takes; if none, the number it makes."""
        (text_address, text), (data_address, data) = self._text, self._data
        address, size = self.exported[function]
        start = address - text_address
        code = text[start : start + (size or _SHORT)]
        places = [
            address + match.end() + struct.unpack("<i", match[1])[0] - data_address
            for match in _LEA.finditer(code)
        ]
        inside = [place for place in places if 0 <= place < len(data)]
        strings = [data[at : data.find(b"\0", at)] for at in inside] or [
            b"".join(_MOV.findall(code))
        ]
        return [one.decode("ascii", "replace") for one in strings]


def read_wheel(remote: RemoteFile, file: str, sha256: str) -> WheelFacts:
    """Return what the wheel is.

    MachineError: the server gives no ranges, or it is no wheel of TensorFlow, or damaged.
    """
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - only an audit needs it

    try:
        with zipfile.ZipFile(io.BufferedReader(remote, _BLOCK)) as wheel:
            return _facts(wheel, remote.size, file, sha256)
    except (*_DAMAGE, ELFError) as error:
        where = shown(remote.url)
        raise MachineError(f"{where} is no wheel of TensorFlow, or damaged: {error}.") from error


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
        libraries=tuple(sorted(libraries)),
        loading=loading if libraries else "none",
        cuda_build=cuda_build if isinstance(cuda_build, bool) else None,
        capabilities=tuple(map(str, built.get("cuda_compute_capabilities", ()))),
        compiler=_compiler(wheel, library),
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


def _gpu_libraries(wheel: zipfile.ZipFile, library: Library) -> tuple[set[str], str]:
    """Return the GPU libraries that TensorFlow loads, and when it does."""
    handles = [match for match in map(_HANDLE.fullmatch, library.exported) if match]
    if not handles:
        names = library.needed | _sonames(wheel)
        return {name for name in names if _GPU_SONAME.fullmatch(name)}, "needed"
    versions = {}
    for handle in handles:
        name = _OPENED.get(handle[1], handle[1].lower())
        strings = library.strings_of(handle[0])
        version = next((one for one in strings if _VERSION.fullmatch(one)), None)
        if name in _GPU.split("|") and version:
            versions[name] = version
    # A CPU build has the driver's name, that of 2.9 TensorRT's too, and opens neither.
    if "cudart" not in versions:
        return set(), "opened"
    return {f"lib{name}.so.{version}" for name, version in versions.items()}, "opened"


def _sonames(wheel: zipfile.ZipFile) -> set[str]:
    """Return the library names in the string table at the beginning of TensorFlow's library.

    The linker adds the C library's name and its versions last of all.
    """
    beginning = b""
    with wheel.open(_member(wheel, *_INTERNAL)) as stream:
        while len(beginning) < _MOST and (piece := stream.read(_BLOCK)):
            beginning += piece
            if b"\0libc.so.6\0" in beginning and b"\0GLIBC_2." in beginning:
                break
    return {name.decode() for name in _SONAME_IN_TABLE.findall(beginning)}


def _compiler(wheel: zipfile.ZipFile, library: Library) -> str:
    """Return the compiler that TensorFlow reports, such as ``7.3.1`` or ``clang-17.0.2``."""
    if _COMPILER not in library.exported:
        if constant := _COMPILER_CONSTANT.search(wheel.read(_member(wheel, _SESSION))):
            return ("clang-" if constant[1] else "") + constant[2].decode()
        raise LookupError("_pywrap_tf_session.so names no compiler")
    for text in library.strings_of(_COMPILER):
        if match := _COMPILER_VERSION.fullmatch(text):
            return match[1]
    raise LookupError("libtensorflow_framework.so has no compiler in tf_compiler_version()")


def _cxx11_abi(library: Library) -> int:
    """Return 1 if TensorFlow's own exported functions take ``std::__cxx11`` strings, else 0.

    Only names in the namespace ``tensorflow`` count: parts of libstdc++ that the compiler linked in
    are of both kinds.
    """
    own = [name for name in library.exported if _OWN.match(name)]
    if not own:
        raise LookupError("libtensorflow_framework.so exports nothing of the namespace tensorflow")
    return int(any("__cxx11" in name for name in own))


def _build_info(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the constants of ``build_info.py``: assignments up to 2.2, one mapping from 2.3 on.

    From 2.4 on the mapping is ``collections.OrderedDict([…])``.
    """
    name = next((one for one in wheel.namelist() if one.endswith(_BUILD_INFO)), None)
    source = wheel.read(name).decode("utf-8", "replace") if name else ""
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
