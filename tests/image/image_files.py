"""The files of the image itself, without what a test run or a GPU adds to its container."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from docker_command import docker
from image_labels import image_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SECONDS = 120
LINE = re.compile(r"(\w) ([0-7]+) (\d+) (/.*)")
#: A second container of the same image, to which no runtime adds a driver.
LISTING = (
    *("run", "--rm", "--network=none", "--env=NVIDIA_VISIBLE_DEVICES=void"),
    "--entrypoint=find",
)

COMPILERS = re.compile(
    r".*/(bin|sbin|libexec|lib/gcc)/(.*/)?"
    r"((.*-)?(gcc|g\+\+|cc|c\+\+|cpp|clang|clang\+\+|gfortran)(-[\d.]+)?"
    r"|cc1|cc1plus|collect2|nvcc|cicc|ptxas|cmake|make)"
)
#: Where caches lie whose content nobody needs in an image.
CACHES = re.compile(
    r"(/var/cache/apt|/var/lib/apt/lists|/opt/miniconda/pkgs)/.*"
    r"|(/root|/home/[^/]+)/(\.cache|\.conda/pkgs|\.local/share/uv)/.*"
    r"|.*\.(deb|whl)"
)
#: CPython's own copies of pip and setuptools, for environments that are made with it.
ENSUREPIP = "/ensurepip/_bundled/"
SETTINGS = (
    r"netrc|npmrc|pypirc|git-credentials|condarc|s3cfg|boto"
    r"|(docker|aws|kube|azure|gnupg|conda)/.*|config/(pip|uv|gh|gcloud|containers|git)/.*"
    r"|ssh/(?!config$).*"
)
#: Login data and keys by their usual names; `image_secrets` looks for what is called otherwise.
SECRETS = re.compile(
    rf"(/root|/home/[^/]+)/\.({SETTINGS})"
    r"|/etc/apt/auth\.conf.*|/run/secrets/.*|/etc/ssh/ssh_host_.*|.*/authorized_keys2?"
)
HISTORIES = re.compile(r"(/root|/home/[^/]+)/\.(\w+_history|histfile|viminfo|lesshst|wget-hsts)")
BYTECODE = re.compile(r"/opt/python/.*\.cpython-(\d+)[\w.-]*\.pyc")
#: Every command may write here, so what lies here was left behind.
TEMPORARY = ("/tmp/", "/var/tmp/", "/run/secrets/")  # noqa: S108
DRIVER = re.compile(r".*/lib(cuda|nvidia-[\w-]+)\.so(\.[\d.]+)?")
#: NVIDIA's packages of the Python package index.
WHEELS = re.compile(r"/opt/python/(lib/python[\d.]+/site-packages/)?nvidia/.*")
CUDA_PLACES = ("/usr/local/cuda", "/usr/include/", "/usr/lib/", "/usr/share/")
TOOLKIT = re.compile(r".*/(nvcc|nvlink|fatbinary|(cuda|cublas|cudnn|nccl|cufft|curand)\w*\.h)")
#: What only compilers read, in the wheels.
OF_COMPILERS = re.compile(r".*(\.(h|hpp|hh|a|cu|cuh)|/include/.*|/(nvcc|cicc|libnvvm[\w.]*))")
#: What XLA compiles a GPU's code with, while a program runs.
PTXAS = re.compile(WHEELS.pattern[:-2] + "cuda_nvcc/bin/ptxas")
STATIC = re.compile(r".*/lib(cu|nccl|np|nv)\w+\.a")
#: NVIDIA's run-time package of CUPTI brings its headers too.
CUPTI = "/extras/CUPTI/"


@dataclass(frozen=True)
class File:
    """One entry of the image: `kind` is find's letter (f, d, l), `size` is in bytes."""

    kind: str
    size: int
    path: str
    mode: int = 0o644


def image_files(hosts: str) -> list[File]:
    """Return all entries of the image that runs behind `--hosts`; fails the test where it cannot.

    Other file systems, such as /proc, are left out.
    """
    command = (*LISTING, image_of(hosts), "/", "-xdev", "-printf", r"%y %m %s %p\n")
    return parsed(docker(*command, seconds=SECONDS))


def parsed(listing: str) -> list[File]:
    """Return what `find` printed; a line that is none belongs to a name with a line end."""
    lines = (LINE.fullmatch(line) for line in listing.splitlines())
    return [File(f[1], int(f[3]), f[4], int(f[2], base=8)) for f in lines if f]


def compilers(files: Iterable[File]) -> list[str]:
    """Return the compilers, and what drives or serves them."""
    return _paths(files, lambda path: bool(COMPILERS.fullmatch(path) and not PTXAS.fullmatch(path)))


def cached(files: Iterable[File]) -> list[str]:
    """Return files of package managers that serve only to install again."""
    full = [file for file in files if file.size and ENSUREPIP not in file.path]
    return _paths(full, lambda path: CACHES.fullmatch(path) is not None)


def foreign_bytecode(files: Iterable[File], python: str) -> list[str]:
    """Return bytecode beside the image's Python that another Python (3.6.15: all but 36) wrote."""
    own = "".join(python.split(".")[:2])
    return _paths(files, lambda path: (BYTECODE.fullmatch(path) or {1: own})[1] != own)


def left_over(files: Iterable[File]) -> list[str]:
    """Return what lies in folders for temporary files."""
    return sorted(file.path for file in files if file.path.startswith(TEMPORARY))


def drivers(files: Iterable[File]) -> list[str]:
    """Return libraries of a driver, or stubs of them: each would hide the real one."""
    return _paths(files, lambda path: DRIVER.fullmatch(path) is not None)


def secrets(files: Iterable[File]) -> list[str]:
    """Return login data, and keys, which would be every user's keys."""
    full = [file for file in files if file.size]
    return _paths(full, lambda path: SECRETS.fullmatch(path) is not None)


def histories(files: Iterable[File]) -> list[str]:
    """Return what shells, Python and editors remember of whoever used them."""
    full = [file for file in files if file.size]
    return _paths(full, lambda path: HISTORIES.fullmatch(path) is not None)


def must_be_none(found: list[str]) -> None:
    """Fail the test with what was found that must not be there."""
    __tracebackhide__ = True
    if found:
        pytest.fail("\n".join(["in the image, and must not be:", *found]), pytrace=False)


def toolkit(files: Iterable[File]) -> list[str]:
    """Return compilers, headers and static libraries of CUDA, cuDNN and NCCL."""
    return _paths(files, _of_toolkit)


def _of_toolkit(path: str) -> bool:
    if WHEELS.fullmatch(path):
        return OF_COMPILERS.fullmatch(path) is not None
    known = TOOLKIT.fullmatch(path) or STATIC.fullmatch(path)
    return known is not None and path.startswith(CUDA_PLACES) and CUPTI not in path


def _paths(files: Iterable[File], wrong: Callable[[str], bool]) -> list[str]:
    """Return the paths of files and links that are wrong."""
    return sorted(file.path for file in files if file.kind in "fl" and wrong(file.path))
