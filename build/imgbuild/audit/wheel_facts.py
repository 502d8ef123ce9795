"""From a wheel on a server to its facts: some MB of it, and nothing of it is run."""

import ast
import re
from email import message_from_bytes
from typing import Any

from imgbuild.audit.elf import Elf, ElfError
from imgbuild.audit.facts import WheelFacts
from imgbuild.audit.failure import ReadError
from imgbuild.audit.libraries import (
    compiler_of,
    cxx11_abi_of,
    gpu_libraries,
    has_loader,
    opened,
    sonames_in,
    string_table_seen,
)
from imgbuild.audit.remote_wheel import RemoteWheel
from imgbuild.audit.zip_directory import Member

_FRAMEWORK = tuple(f"/libtensorflow_framework.so{end}" for end in ("", ".1", ".2"))
_INTERNAL = ("/python/_pywrap_tensorflow_internal.so",)
_BUILD_INFO = ("/python/platform/build_info.py",)


def read_facts(wheel: RemoteWheel, file: str, sha256: str) -> WheelFacts:
    """Return what the wheel is.

    Raises:
        ReadError: a member that every TensorFlow has is missing or damaged.

    """
    metadata = message_from_bytes(wheel.read(_required(wheel, (".dist-info/METADATA",))))
    tags = message_from_bytes(wheel.read(_required(wheel, (".dist-info/WHEEL",))))
    built = _build_info(wheel)
    try:
        library = Elf(wheel.read(_required(wheel, _FRAMEWORK)))
        libraries, loading = _libraries(wheel, library)
        compiler, abi = compiler_of(library), cxx11_abi_of(library)
    except ElfError as error:
        raise ReadError(f"{wheel.reader.name}: libtensorflow_framework.so: {error}.") from error
    cuda_build = built.get("is_cuda_build")
    return WheelFacts(
        sha256=sha256,
        file=file,
        size=wheel.reader.size,
        name=str(metadata["Name"]),
        version=str(metadata["Version"]),
        tags=tuple(str(tag) for tag in tags.get_all("Tag", [])),
        libraries=libraries,
        loading=loading,
        cuda_build=cuda_build if isinstance(cuda_build, bool) else None,
        capabilities=tuple(map(str, built.get("cuda_compute_capabilities", ()))),
        compiler=compiler,
        cxx11_abi=abi,
        glibc=library.glibc,
    )


def _required(wheel: RemoteWheel, ends: tuple[str, ...]) -> Member:
    member = wheel.find(ends)
    if member is None:
        raise ReadError(f"{wheel.reader.name} has no {ends[0]}; it is no wheel of TensorFlow.")
    return member


def _libraries(wheel: RemoteWheel, library: Elf) -> tuple[tuple[str, ...], str]:
    """Return the GPU libraries that TensorFlow loads, and when it does."""
    if has_loader(library):
        found, loading = opened(library), "opened"
    else:
        internal = _required(wheel, _INTERNAL)
        beginning = wheel.read_until(internal, string_table_seen)
        found, loading = gpu_libraries((*library.needed, *sonames_in(beginning))), "needed"
    return found, loading if found else "none"


def _build_info(wheel: RemoteWheel) -> dict[str, Any]:
    """Return the constants of ``build_info.py``: assignments up to 2.2, one mapping from 2.3 on."""
    member = wheel.find(_BUILD_INFO)
    if member is None:
        return {}
    source = wheel.read(member).decode("utf-8", "replace")
    values = dict(_assignments(source))
    nested = values.get("build_info")
    return nested if isinstance(nested, dict) else values


def _assignments(source: str) -> list[tuple[str, Any]]:
    """Return the lines ``name = constant``, read as text, never executed."""
    found = []
    for name, value in re.findall(r"^(\w+) = (.+)$", source, re.MULTILINE):
        try:
            found.append((name, ast.literal_eval(value)))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return found
