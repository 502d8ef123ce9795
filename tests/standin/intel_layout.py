"""The Intel MPI of the Python index, laid out as its installer of 2018 does below /opt/intel.

Differences: `linux/mpi` also has `bin`, `lib`, `etc` and `include`, where the newer library looks
for itself; libfabric's providers are found through /opt/intel/fi, so that no environment is needed.
"""

import re
from collections.abc import Iterator, Mapping

from standin.context import HERE
from standin.deb import Member

Files = dict[str, Member]
INSTALL_FOLDER = "/opt/intel"
#: Where libfabric looks for its providers unless FI_PROVIDER_PATH says otherwise.
_OLD_PROVIDERS, _PROVIDERS = "/usr/local/lib/libfabric", f"{INSTALL_FOLDER}/fi"
#: Of libfabric's providers those that need no special network hardware.
_KEPT_PROVIDERS = re.compile(r"lib(tcp|rxm|shm|sockets)-fi\.so")
_LEFT_OUT = re.compile(
    r"bin/(IMB-.*|libfabric/.*|tune.*|mpitune.*)|lib/libmpi_ilp64.*|etc/conda/.*"
)
_LIBRARY = re.compile(r"lib/(lib\w+\.so)((?:\.\d+)*)")
#: What the real one brings beside, and an image has no use for.
_BALLAST = (
    "benchmarks/imb/README", "binding/intel-mpi-binding-kit.tar.gz", "doc/en/index.htm",
    "man/man3/MPI_Init.3", "mic/lib/libmpi_mt.so.4.0", "test/test.c", "intel64/lib/libmpi.a",
    "intel64/lib/debug/libmpi.so.12.0", "intel64/lib/debug_mt/libmpi.so.12.0",
    "intel64/lib/release/libmpi.so.12.0", "intel64/lib/mpi.jar", "intel64/bin/tune/mpitune",
)  # fmt: skip


def layout(version: str, wheels: Mapping[str, tuple[bytes, int]]) -> Files:
    """Return what lies below /opt/intel, by path; ``wheels`` has the wheels' files with modes."""
    home = f"compilers_and_libraries_{version}/linux/mpi"
    year = version.partition(".")[0]
    found = {f"{home}/{path}": member for path, member in _home_files(version, wheels)}
    links = {
        f"compilers_and_libraries_{year}/linux": f"../compilers_and_libraries_{version}/linux",
        "compilers_and_libraries": f"compilers_and_libraries_{year}",
        f"impi/{version}": f"../{home}",
        "fi": f"{home}/intel64/lib/libfabric/prov",
    }
    documents = [f"documentation_{year}/en/readme.htm", f"samples_{year}/en/readme.htm"]
    ballast = {path: Member(b"a stand-in\n") for path in documents}
    return {**found, **{path: Member(link=to) for path, to in links.items()}, **ballast}


def _home_files(
    version: str, wheels: Mapping[str, tuple[bytes, int]]
) -> Iterator[tuple[str, Member]]:
    """Yield what is below the library's own folder."""
    root = f"{INSTALL_FOLDER}/compilers_and_libraries_{version}/linux/mpi"
    for path in _BALLAST:
        yield path, Member(b"a stand-in\n")
    for name in ("bin", "lib", "etc", "include"):
        yield f"{name}64", Member(link=f"intel64/{name}")
        yield name, Member(link=f"intel64/{name}")
    vars_text = (HERE / "files" / "mpivars.sh").read_text(encoding="utf-8")
    yield "intel64/bin/mpivars.sh", Member(vars_text.replace("{root}", root).encode(), 0o755)
    for path, (content, mode) in wheels.items():
        if not _LEFT_OUT.fullmatch(path):
            yield from _placed(path, _adapted(content, root), mode, wheels)


def _placed(
    path: str, content: bytes, mode: int, wheels: Mapping[str, tuple[bytes, int]]
) -> Iterator[tuple[str, Member]]:
    """Yield where one file of the wheels goes; copies under other names become links."""
    library, folder = _LIBRARY.fullmatch(path), path.rpartition("/")[0]
    if folder.endswith("libfabric/prov") and not _KEPT_PROVIDERS.fullmatch(path[len(folder) + 1 :]):
        return
    if path == "lib/libfabric/libfabric.so":
        return
    if path == "lib/libfabric/libfabric.so.1":
        yield "intel64/lib/libfabric.so.1", Member(content, 0o755)
        yield f"intel64/{path}", Member(link="../libfabric.so.1")
    elif library:
        yield from _library(library[1], library[2], content, wheels)
    elif path.startswith(("bin/", "lib/", "etc/", "include/")):
        yield f"intel64/{path}", Member(content, mode)


def _library(
    name: str, suffix: str, content: bytes, wheels: Mapping[str, tuple[bytes, int]]
) -> Iterator[tuple[str, Member]]:
    """Yield a library: libmpi's file is in release_mt, each shorter name a link to the longest."""
    suffixes = [
        path.removeprefix(f"lib/{name}") for path in wheels if path.startswith(f"lib/{name}")
    ]
    longest = max(suffixes, key=len)
    folder = "intel64/lib/release_mt" if name == "libmpi.so" else "intel64/lib"
    if suffix == longest:
        yield f"{folder}/{name}{suffix}", Member(content, 0o755)
    else:
        yield f"{folder}/{name}{suffix}", Member(link=f"{name}{longest}")
    if folder != "intel64/lib":
        yield f"intel64/lib/{name}{suffix}", Member(link=f"release_mt/{name}{longest}")


def _adapted(content: bytes, root: str) -> bytes:
    """Return a file with its own folder in place of the placeholder, and its providers' folder."""
    if content.startswith(b"#!"):
        return content.replace(b"I_MPI_SUBSTITUTE_INSTALLDIR", root.encode())
    if content.startswith(b"\x7fELF") and _OLD_PROVIDERS.encode() in content:
        return _replace_in_strings(content, _OLD_PROVIDERS, _PROVIDERS)
    return content


def _replace_in_strings(content: bytes, old: str, new: str) -> bytes:
    r"""Return ELF ``content`` with the folder ``old`` inside C strings replaced, at equal length.

    No byte after a replaced name moves, because linkers merge a string with the end of a longer
    one (``SHF_MERGE``). Inside a longer string the new name is filled up with slashes,
    ``/opt/intel////lib``; at the end of a string it ends early, and the last part of the old name
    stays behind the end, where only the merged string's reader sees it.
    """
    old_bytes, new_bytes = old.encode(), new.encode()
    tail = b"\0" + old_bytes.rpartition(b"/")[2]
    if len(new_bytes) + len(tail) > len(old_bytes):
        raise ValueError(f"{new} is too long to stand in place of {old}")
    ended = new_bytes + tail.rjust(len(old_bytes) - len(new_bytes), b"\0")
    inside = new_bytes.ljust(len(old_bytes), b"/")
    content = content.replace(old_bytes + b"\0", ended + b"\0")
    return re.sub(re.escape(old_bytes) + rb"(?![\w.-])", lambda _: inside, content)
