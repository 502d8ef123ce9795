"""Write `symbols/`: what TensorFlow's GPU wheels and Horovod ask of NVIDIA's libraries.

`python -m standin.collect_symbols FOLDER` reads every .whl of tensorflow-gpu and every source
distribution of Horovod in FOLDER (`pip download --no-deps`). Run it again for a new TensorFlow.

A name that a library is asked for is a whole C string in the asking file, whether the linker (the
wheels up to 1.13) or dlsym (from 1.14 on) looks for it: that is what is collected. A few strings
that are no such name do no harm.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SYMBOLS = Path(__file__).with_name("symbols")
#: The beginnings of the names of each library's functions; the longer one first.
PREFIXES = {
    "cublas": "cublas",
    "cudnn": "cudnn",
    "cufft": "cufft",
    "cupti": "cupti",
    "curand": "curand",
    "cusolver": "cusolver",
    "cusparse": "cusparse",
    "nccl": "nccl",
    "cudart": "cuda|__cuda",
    "cuda": "cu",
}
#: Names of what the wheels bring themselves: their static NCCL, whose functions `nccl.h` lists.
_NOT_ASKED_FOR = re.compile(r"__cuda(RegisterLinkedBinary_|_sm)|nccl")
_WHEEL = re.compile(r"tensorflow_gpu-(\d+\.\d+)[^/]*\.whl")
_CALL = re.compile(r"\b((?:cuda|nccl)[A-Z]\w+)\s*\(")
_OVERLAP = 256  # bytes; longer than any name
_CHUNK = 1 << 24

Found = dict[tuple[str, str], set[str]]


def library_of(name: str) -> str | None:
    """Return the library that a function's name belongs to, or nothing."""
    for library, prefixes in PREFIXES.items():
        if re.match(rf"(?:{prefixes})[A-Z]", name):
            return library
    return None


def strings_of(chunks: Iterable[bytes]) -> set[str]:
    """Return the whole C strings that could be names of such functions."""
    pattern = re.compile(rb"(?<=\0)(?:cu|nccl|__cuda)[A-Za-z0-9_]{3,100}(?=\0)")
    found: set[bytes] = set()
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        found.update(pattern.findall(text))
        rest = text[-_OVERLAP:]
    return {name.decode() for name in found if not _NOT_ASKED_FOR.match(name.decode())}


def collect_wheel(path: Path, cuda: str, found: Found) -> None:
    """Add what the shared libraries of one wheel ask for."""
    with zipfile.ZipFile(path) as wheel:
        for member in wheel.namelist():
            if ".so" in member:
                _sort(strings_of(_chunks(wheel, member)), cuda, found)


def collect_horovod(path: Path, found: Found) -> None:
    """Add the functions that Horovod's sources call."""
    with tarfile.open(path) as archive:
        for member in archive:
            if "/horovod/" in member.name and member.name.endswith((".cc", ".h")):
                stream = archive.extractfile(member)
                text = stream.read().decode(errors="replace") if stream else ""
                _sort(set(_CALL.findall(text)), "horovod", found)


def main(folder: Path, cuda_of: dict[str, str]) -> None:
    """Write the sorted names of every CUDA release and library below `symbols/`."""
    found: Found = defaultdict(set)
    for path in sorted(folder.iterdir()):
        wheel = _WHEEL.fullmatch(path.name)
        if wheel:
            collect_wheel(path, cuda_of[wheel[1]], found)
        elif path.name.startswith("horovod-"):
            collect_horovod(path, found)
    for (group, library), names in sorted(found.items()):
        target = SYMBOLS / group / f"{library}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")


def _sort(names: set[str], group: str, found: Found) -> None:
    for name in names:
        library = library_of(name)
        if library:
            found[group, library].add(name)


def _chunks(wheel: zipfile.ZipFile, member: str) -> Iterator[bytes]:
    with wheel.open(member) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


if __name__ == "__main__":
    from imgbuild.matrix.load import load_matrix

    _matrix = load_matrix(Path(__file__).parents[2] / "matrix.yaml")
    _releases = _matrix.tensorflow.items()
    main(Path(sys.argv[1]), {v.rpartition(".")[0]: wheel.gpu.cuda for v, wheel in _releases})
