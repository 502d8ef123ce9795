"""A wheel like TensorFlow's, some KB of it: an ELF library with a loader, in a zip archive."""

import io
import struct
import zipfile
from dataclasses import dataclass, field

_HANDLE = "_ZN15stream_executor8internal9DsoLoader{}Get{}DsoHandleEv"
GPU_10_1 = {"CudaDriver": "1", "CudaRuntime": "10.1", "Cublas": "10", "Cudnn": "7"}
GPU_11_2 = {"CudaDriver": "1", "CudaRuntime": "11.0", "Cudnn": "8", "NvInfer": "8.6.1"}
#: Machines of ELF libraries: elf(5).
X86_64, AARCH64 = 62, 183
CPU = {"CudaDriver": "1", "CudaRuntime": "", "Cublas": "", "Cudnn": ""}


@dataclass
class FakeWheel:
    """What is written into the wheel; ``loader`` empty makes one of TensorFlow 1.13 or older."""

    name: str = "tensorflow-gpu"
    version: str = "2.2.0"
    compiler: str = "7.3.1 20180303"
    loader: dict[str, str] = field(default_factory=lambda: dict(GPU_10_1))
    needed: tuple[str, ...] = ("libc.so.6",)
    own: tuple[str, ...] = ("_ZN10tensorflow3fooERKSs",)
    glibc: str = "2.12"
    build_info: str = "is_cuda_build = True\n"
    tag: str = "cp36-cp36m-manylinux2010_x86_64"
    #: Whether it is as from 2.9 on: versions in the loader's code, the compiler in another library.
    recent: bool = False
    #: Kind (1: PTX, 2: machine code) and capability of each entry of a fat binary.
    code: tuple[tuple[int, int], ...] = ((2, 35), (2, 70), (1, 70))
    #: The machine in the library's header: X86_64 or AARCH64.
    machine: int = X86_64

    @property
    def file(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-{self.tag}.whl"

    def content(self) -> bytes:
        info = f"{self.name.replace('-', '_')}-{self.version}.dist-info"
        python, abi, platforms = self.tag.split("-")
        tags = "".join(f"Tag: {python}-{abi}-{one}\n" for one in platforms.split("."))
        beginning = b"\0".join(
            [b"\x7fELF", *(n.encode() for n in self.needed), b"GLIBC_2.2.5", b""]
        )
        entries = (struct.pack("<HHI20xI", kind, 0x101, 64, sm) for kind, sm in self.code)
        beginning += b"".join(entries)
        files = {
            f"{info}/METADATA": f"Name: {self.name}\nVersion: {self.version}\n".encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\n{tags}".encode(),
            "tensorflow/libtensorflow_framework.so.2": self.library(),
            "tensorflow/python/_pywrap_tensorflow_internal.so": beginning,
            "tensorflow/python/platform/build_info.py": self.build_info.encode(),
        }
        if self.recent:
            session = f"\0{self.version}\0{self.compiler}\0"
            files["tensorflow/python/client/_pywrap_tf_session.so"] = session.encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return buffer.getvalue()

    def library(self) -> bytes:
        functions = {} if self.recent else {"_Z19tf_compiler_versionv": self.compiler}
        for part, version in self.loader.items():
            functions[_HANDLE.format(len(part) + 12, part)] = version
        library = elf(functions, self.own, self.needed, self.glibc, made=self.recent)
        return library[:18] + struct.pack("<H", self.machine) + library[20:]


def elf(
    functions: dict[str, str],
    own: tuple[str, ...],
    needed: tuple[str, ...],
    glibc: str,
    *,
    made: bool = False,
) -> bytes:
    """Return a library whose functions take the address of one string each, or make it."""
    names, constants, code, symbols, dynamic = b"\0", b"\0", b"", b"\0" * 24, b""
    text_at, constants_at = 0x1000, 0x9000
    for name, string in functions.items():
        at = constants_at + len(constants)
        constants += string.encode() + b"\0"
        address = text_at + len(code)
        body = b"\x48\x8d\x05" + struct.pack("<i", at - address - 7) + b"\xb88\0\0\0\xc3"
        if made:  # mov [rbp - 64], four bytes; mov [rbp - 60], two
            text = string.encode().ljust(6, b"\0")
            body = b"\xc7\x45\xc0" + text[:4] + b"\x66\xc7\x45\xc4" + text[4:] + b"\xc3"
        code += body
        symbols += struct.pack("<IBBHQQ", len(names), 0x12, 0, 1, address, len(body))
        names += name.encode() + b"\0"
    for name in own:
        symbols += struct.pack("<IBBHQQ", len(names), 0x12, 0, 1, text_at, 0)
        names += name.encode() + b"\0"
    for name in needed:
        dynamic += struct.pack("<qQ", 1, len(names))
        names += name.encode() + b"\0"
    names += f"GLIBC_2.2.5\0GLIBC_{glibc}\0".encode()
    # Type, link to the section with the names, size of an entry: elf(5).
    sections = {
        b".text": (1, 0, 0, text_at, code),
        b".rodata": (1, 0, 0, constants_at, constants),
        b".dynsym": (11, 4, 24, 0, symbols),
        b".dynstr": (3, 0, 0, 0, names),
        b".dynamic": (6, 4, 16, 0, dynamic + b"\0" * 16),
    }
    return _assembled(sections)


def _assembled(sections: dict[bytes, tuple[int, int, int, int, bytes]]) -> bytes:
    body, headers, titles = b"", b"\0" * 64, b"\0"
    for name, (kind, link, entry, address, content) in sections.items():
        where = (len(titles), kind, 0, address, 64 + len(body), len(content))
        headers += struct.pack("<IIQQQQIIQQ", *where, link, 0, 1, entry)
        titles += name + b"\0"
        body += content
    where = (len(titles), 3, 0, 0, 64 + len(body), len(titles) + len(b".shstrtab\0"))
    headers += struct.pack("<IIQQQQIIQQ", *where, 0, 0, 0, 0)
    body += titles + b".shstrtab\0"
    count = len(sections) + 2
    start = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHI", 3, 62, 1)
    start = start.ljust(40, b"\0") + struct.pack("<Q", 64 + len(body))
    start += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, count, count - 1)
    return start + body + headers
