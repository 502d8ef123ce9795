"""Run in an image, by its own Python (3.6 and later): print what is in it, as JSON.

TensorFlow is not imported: that takes seconds, and up to 1.13 for GPUs it needs a driver. Whether
it is a CUDA build is read from its files, twice: from what its build wrote down
(``build_info.py``), and from whether its library holds GPU kernels (the ELF section ``.nv_fatbin``,
into which NVIDIA's compiler puts them; read from the section headers, not from the half gigabyte).
"""

import json
import os
import platform
import re
import struct
import subprocess
import sys
from pathlib import Path

#: Names and versions; a Horovod with patches has their number in its version.
DISTRIBUTION = re.compile(
    r"(tensorflow(?:_cpu_aws|_aarch64|_cpu|_gpu)?|horovod)-([0-9.]+(?:\+imgbuild\.[0-9]+)?)(?:-.*)?\."
    r"(?:dist|egg)-info"
)
PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._]*)-([0-9][^-]*)(?:-.*)?\.(?:dist|egg)-info")
#: ``is_cuda_build = True`` until TensorFlow 2.2, later a dictionary's ``'is_cuda_build': True``, or
#: ``('is_cuda_build', True)`` in an OrderedDict, for example in 2.15.
CUDA_BUILD = re.compile(r"is_cuda_build'?\s*[:=,]\s*(True|False)\b")
CUDA_RUNTIME = re.compile(
    r"libcudart\.so\.([0-9]+(?:\.[0-9]+)+)|nvidia_cuda_runtime(?:_cu\d+)?-([0-9.]+)\.dist-info"
)
LIBRARY_FOLDERS = "/usr/local/cuda*/lib64:/usr/local/cuda*/targets/*/lib:/usr/lib/x86_64-linux-gnu"
KERNELS = b".nv_fatbin"
#: Where an ELF header has the place of the section headers, and their size, number and names.
ELF_HEADER = struct.Struct("<40xQ10xHHH")
#: A section header's place and size.
SECTION = struct.Struct("<24xQQ24x")
MPIRUN_SECONDS = 30


def list_installed(names: "re.Pattern[str]") -> "list[list[str]]":
    """Return name and version of every distribution that is installed and has such a name."""
    folders = {Path(folder).resolve() for folder in sys.path if folder}
    distributions = []
    for folder in folders:
        for file in folder.iterdir() if folder.is_dir() else ():
            match = names.fullmatch(file.name)
            if match:
                distributions.append([match.group(1).replace("_", "-"), match.group(2)])
    return sorted(distributions)


def find_in_tensorflow(path: str) -> "Path | None":
    """Return the file of that path in the package; from 1.15 to 2.1 its files lay in another."""
    for folder in sys.path:
        for package in ("tensorflow_core", "tensorflow"):
            file = Path(folder, package, path)
            if file.is_file():
                return file
    return None


def built_with_cuda() -> "bool | None":
    """Return what the build wrote down; None if nothing."""
    path = find_in_tensorflow("python/platform/build_info.py")
    match = CUDA_BUILD.search(path.read_text(encoding="utf-8")) if path else None
    return match.group(1) == "True" if match else None


def has_kernels() -> "bool | None":
    """Return whether the library has code for GPUs; None if there is no library."""
    path = find_in_tensorflow("python/_pywrap_tensorflow_internal.so")
    if path is None:
        return None
    with path.open("rb") as file:
        place, size, count, names = ELF_HEADER.unpack(file.read(ELF_HEADER.size))
        file.seek(place)
        begin, length = SECTION.unpack_from(file.read(size * count), names * size)
        file.seek(begin)
        return KERNELS in file.read(length).split(b"\0")


def list_cuda_runtimes() -> "list[str]":
    """Return the versions in the names of all of CUDA's runtime libraries, links followed.

    The library of a wheel has no version in its name, but the wheel has.
    """
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":") + LIBRARY_FOLDERS.split(":")
    names: set[str] = set()
    for folder in folders:
        if folder.strip("/"):
            pattern = folder.strip("/") + "/libcudart.so*"
            names |= {file.resolve().name for file in Path("/").glob(pattern)}
    for folder in sys.path:
        names |= {file.name for file in Path(folder).glob("nvidia_cuda_runtime*")}
    matches = filter(None, map(CUDA_RUNTIME.fullmatch, names))
    return sorted({match.group(1) or match.group(2) for match in matches})


def read_mpirun_version() -> str:
    """Return the version text of the ``mpirun`` on PATH; nothing if it cannot be run."""
    command = ["mpirun", "--version"]
    try:
        output = subprocess.check_output(command, stderr=subprocess.STDOUT, timeout=MPIRUN_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return output.decode(errors="replace")


def read_os_release() -> "dict[str, str]":
    """Return /etc/os-release without its quotes."""
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key: value.strip("\"'") for key, value in pairs}


if __name__ == "__main__":
    system = read_os_release()
    packages = list_installed(PACKAGE)
    answer = {
        "distributions": list_installed(DISTRIBUTION),
        "packages": {re.sub("[-.]+", "-", name.lower()): version for name, version in packages},
        "glibc": platform.libc_ver()[1],
        "built_with_cuda": built_with_cuda(),
        "kernels": has_kernels(),
        "python": platform.python_version(),
        "mpirun": read_mpirun_version(),
        "cuda": list_cuda_runtimes(),
        "os": [system.get("ID", ""), system.get("VERSION_ID", "")],
    }
    sys.stdout.write(json.dumps(answer))
