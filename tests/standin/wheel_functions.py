"""The functions of NVIDIA's libraries that TensorFlow's GPU wheels ask for, read out of the wheels.

Up to TensorFlow 1.13 they are undefined symbols, from 1.14 on texts that are looked up in a library
when it is first used. Both are C strings of the wheel that begin as the library's functions do;
a few strings that only look so do no harm in a stand-in.
"""

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.images import Image, all_images
from standin.context import Context
from standin.workbench import pip_download, scratch

#: The names of a library's functions, by library.
Functions = Mapping[str, frozenset[str]]

_STRING = re.compile(rb"\0((?:__cuda(?!RegisterLinkedBinary)|cu)[A-Za-z][A-Za-z0-9_]{2,80})(?=\0)")
_LIBRARY = re.compile(r"(?:__)?cu(?:da|blas|dnn|fft|pti|rand|solver|sparse)?(?=[A-Z])")
#: As the libraries are called; the others are as their functions begin.
_NAMES = {"cuda": "cudart", "__cuda": "cudart", "cu": "cuda"}
_CHUNK = 1 << 24
_LONGEST = 100
_PYTHON = ("--implementation", "cp", "--abi", "cp36m", "--python-version", "36")
_PLATFORMS = ("--platform", "manylinux1_x86_64", "--platform", "manylinux2010_x86_64")


def locked_wheels(context: Context) -> dict[str, list[str]]:
    """Return the lines of the locks for TensorFlow's GPU wheels, by CUDA."""
    found: dict[str, list[str]] = defaultdict(list)
    for image in all_images(context.matrix):
        if image.apt_cuda:
            found[image.version_of("cuda")].append(_locked(image, context))
    return found


def _locked(image: Image, context: Context) -> str:
    return read_lock(context.project.locks / image.lock_name).entries[image.distribution]


def wheel_functions(context: Context) -> dict[str, Functions]:
    """Return the functions by CUDA and library; each wheel is read once."""
    found: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for cuda, wheels in locked_wheels(context).items():
        for line in wheels:
            name = f"functions-{line.split()[0].replace('==', '-')}"
            sources = ("wheel_functions.py",)
            folder = context.stored(name, [line], sources, partial(_write, line))
            for file in folder.glob("*.txt"):
                known = found[cuda].get(file.stem, frozenset())
                found[cuda][file.stem] = known | {*file.read_text(encoding="utf-8").split()}
    return dict(found)


def _write(line: str, folder: Path) -> None:
    """Write the functions that one wheel asks for: a file a library."""
    with scratch() as place:
        (place / "requirements.txt").write_text(line, encoding="utf-8")
        pip_download(place / "requirements.txt", place, *_PYTHON, *_PLATFORMS)
        found = by_library(functions_in(next(place.glob("*.whl"))))
    for library, names in found.items():
        text = "".join(f"{name}\n" for name in sorted(names))
        (folder / f"{library}.txt").write_text(text, encoding="utf-8")


def by_library(names: Iterable[str]) -> dict[str, set[str]]:
    """Return those of the names that are functions of a library, by library."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in names:
        if match := _LIBRARY.match(name):
            found[_NAMES.get(match[0], match[0])].add(name)
    return found


def functions_in(wheel: Path) -> Iterator[str]:
    """Yield the C strings of a wheel's libraries that begin with ``cu``, some more than once."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.endswith(".so") or ".so." in member:
                with archive.open(member) as file:
                    rest = b""
                    while chunk := file.read(_CHUNK):
                        text = rest + chunk
                        yield from (found[1].decode() for found in _STRING.finditer(text))
                        rest = text[-_LONGEST:]
