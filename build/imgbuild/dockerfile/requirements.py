"""The requirements that locks must satisfy by the matrix, and which of them a lock does not."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from imgbuild.dockerfile.conda import conda_lock_name, conda_pythons
from imgbuild.dockerfile.lockfile import Lock, read_lock
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image, all_images, minor_of
from imgbuild.matrix.model import CondaPython, Condition, Matrix


@dataclass(frozen=True)
class LockRequest:
    """What to resolve: requirements (installed) and constraints (only narrowing)."""

    file_name: str
    title: str
    python: str  # two numbers, e.g. "3.6"
    requirements: tuple[str, ...]
    constraints: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The sha256 that a lock records of the request it was made for."""
        parts = [self.python, self.requirements, self.constraints]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def lock_requests(images: Iterable[Image]) -> tuple[LockRequest, ...]:
    """Return one request a lock file; images that share a lock share the request."""
    requests: dict[str, LockRequest] = {}
    for image in images:
        for request in requests_of(image):
            requests.setdefault(request.file_name, request)
    return tuple(requests.values())


def requests_of(image: Image) -> tuple[LockRequest, ...]:
    """Return the requests of one image's locks."""
    mpi = mpi_request(image)
    return (image_request(image), build_request(image), *((mpi,) if mpi else ()))


def image_request(image: Image) -> LockRequest:
    """Return what the image's packages must satisfy."""
    python = minor_of(image.version_of("python"))
    pinned = (
        f"{image.distribution}=={image.tensorflow}",
        f"tensorboard=={image.version_of('tensorboard')}",
    )
    return LockRequest(
        image.lock_name,
        f"TensorFlow {image.tensorflow}, Python {python}, {image.variant}",
        python,
        (*pinned, *_applicable(image.matrix.requirements, image)),
        tuple(_applicable(image.matrix.constraints, image)),
    )


def build_request(image: Image) -> LockRequest:
    """Return what builds the image's source distributions."""
    python = minor_of(image.version_of("python"))
    wanted = tuple(_applicable(image.matrix.build_requirements, image))
    return LockRequest(
        image.build_lock_name,
        f"what builds source distributions, Python {python}",
        python,
        wanted,
        (),
    )


def mpi_request(image: Image) -> LockRequest | None:
    """Return what an MPI of the Python package index is; None where it comes otherwise."""
    mpi, name = image.mpi, image.mpi_lock_name
    if name is None or mpi.origin != "index":
        return None
    python = minor_of(image.version_of("python"))
    wanted = tuple(f"{package}=={mpi.version}" for package in (mpi.runtime, mpi.build))
    return LockRequest(name, f"{image.mpi_name}, Python {python}", python, wanted, ())


def _applicable(conditions: Iterable[Condition], image: Image) -> list[str]:
    return [condition.require for condition in conditions if _applies(condition, image)]


def _applies(condition: Condition, image: Image) -> bool:
    python = minor_of(image.version_of("python"))
    return _admits(condition.tensorflow, image.tensorflow) and _admits(condition.python, python)


@cache
def _admits(specifier: str | None, version: str) -> bool:
    return specifier is None or SpecifierSet(specifier).contains(version)


@dataclass(frozen=True)
class LockFamily:
    """What to lock: Python packages and conda interpreters. ``names`` are those of all locks."""

    matrix: Matrix
    requests: tuple[LockRequest, ...]
    pythons: Mapping[str, CondaPython]
    names: frozenset[str]


def lock_family(matrix: Matrix, stack: str | None = None) -> LockFamily:
    """Return the locks of one stack's images, or of all.

    Raises:
        InputError: the matrix has no such stack.

    """
    if stack is not None and stack not in matrix.stacks:
        raise InputError(
            f"The matrix has no stack {stack!r}; there are: {', '.join(matrix.stacks)}."
        )
    images = all_images(matrix)
    chosen = [image for image in images if stack in {None, image.stack}]
    pythons = conda_pythons(matrix, {image.version_of("python") for image in chosen})
    names = {request.file_name for request in lock_requests(images)}
    names |= {conda_lock_name(version) for version in conda_pythons(matrix)}
    return LockFamily(matrix, lock_requests(chosen), pythons, frozenset(names))


def find_problems(
    requests: Iterable[LockRequest], folder: Path, names: Iterable[str] = ()
) -> list[str]:
    """Return one line a problem: missing, stale, unsatisfied, or belonging to no image.

    ``names`` are the matrix's locks beside those of ``requests``.
    """
    wanted = {request.file_name: request for request in requests}
    problems = [line for request in wanted.values() for line in _problems_of(request, folder)]
    stale = find_stale({*wanted, *names}, folder)
    return [*problems, *(f"{path.name}: belongs to no image of the matrix" for path in stale)]


def find_stale(names: Iterable[str], folder: Path) -> list[Path]:
    """Return the locks that are none of ``names``, so belong to no image of the matrix any more."""
    wanted = {*names}
    return sorted(path for path in folder.glob("*.txt") if path.name not in wanted)


def lock_problems(request: LockRequest, folder: Path) -> list[str]:
    """Return one line a problem of the lock that a request is for."""
    return list(_problems_of(request, folder))


def _problems_of(request: LockRequest, folder: Path) -> Iterator[str]:
    try:
        lock = read_lock(folder / request.file_name)
    except InputError as error:
        yield str(error)
        return
    unmet = list(_unmet(request, lock))
    yield from (f"{request.file_name}: {line}" for line in unmet)
    if not unmet and lock.request_digest != request.digest:
        yield f"{request.file_name}: made for other requirements than the matrix has now"


@cache
def _parsed(text: str) -> Requirement:
    return Requirement(text)


def _unmet(request: LockRequest, lock: Lock) -> Iterator[str]:
    for text in request.requirements:
        requirement = _parsed(text)
        version = lock.versions.get(canonicalize_name(requirement.name))
        if version is None:
            yield f"{requirement.name} is missing; the matrix requires {text}"
        elif not requirement.specifier.contains(version, prereleases=True):
            yield f"has {requirement.name} {version}; the matrix requires {text}"
    for text in request.constraints:
        constraint = _parsed(text)
        version = lock.versions.get(canonicalize_name(constraint.name))
        if version and not constraint.specifier.contains(version, prereleases=True):
            yield f"has {constraint.name} {version}; the matrix allows only {text}"
