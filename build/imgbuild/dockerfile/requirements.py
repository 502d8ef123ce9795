"""The requirements that locks must satisfy by the matrix, and which of them a lock does not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from imgbuild.dockerfile.conda import conda_lock_name, conda_problems, conda_pythons
from imgbuild.dockerfile.lockfile import Lock, read_lock
from imgbuild.errors import InputError
from imgbuild.files import json_sha256
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import CondaPython, Condition, Matrix
from imgbuild.matrix.rules import admits


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
        return json_sha256([self.python, self.requirements, self.constraints])


@dataclass(frozen=True)
class LockFamily:
    """The locks of Python packages and of conda interpreters that a command works on.

    ``names`` are those of all locks of the matrix.
    """

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
    selected = [image for image in images if stack in {None, image.stack}]
    pythons = conda_pythons(matrix, {image.version_of("python") for image in selected})
    names = {request.file_name for request in lock_requests(images)}
    names |= {conda_lock_name(version) for version in conda_pythons(matrix)}
    return LockFamily(matrix, lock_requests(selected), pythons, frozenset(names))


def lock_requests(images: Iterable[Image]) -> tuple[LockRequest, ...]:
    """Return one request a lock file; images that share a lock share the request."""
    requests: dict[str, LockRequest] = {}
    for image in images:
        for request in requests_of(image):
            requests.setdefault(request.file_name, request)
    return tuple(requests.values())


def requests_of(image: Image) -> tuple[LockRequest, ...]:
    """Return the requests of one image's locks: its packages, their build tools, its MPI."""
    matrix, mpi, python = image.matrix, image.mpi, image.python_minor
    pins = (
        f"{image.distribution}=={image.tensorflow}",
        f"tensorboard=={image.version_of('tensorboard')}",
    )
    found = [
        LockRequest(
            image.lock_name,
            f"TensorFlow {image.tensorflow}, Python {python}, {image.variant}",
            python,
            (*pins, *_applicable(matrix.requirements, image)),
            _applicable(matrix.constraints, image),
        ),
        LockRequest(
            image.build_lock_name,
            f"what builds source distributions, Python {python}",
            python,
            _applicable(matrix.build_requirements, image),
            (),
        ),
    ]
    if image.mpi_lock_name and mpi.origin == "index":
        packages = tuple(f"{package}=={mpi.version}" for package in (mpi.runtime, mpi.build))
        title = f"{image.mpi_name}, Python {python}"
        found.append(LockRequest(image.mpi_lock_name, title, python, packages, ()))
    return tuple(found)


def family_problems(family: LockFamily, folder: Path) -> list[str]:
    """Return one line a problem: a lock missing, stale, unsatisfied, or belonging to no image."""
    return [
        *(line for request in family.requests for line in lock_problems(request, folder)),
        *(
            f"{path.name}: belongs to no image of the matrix"
            for path in stale_locks(family, folder)
        ),
        *conda_problems(family.pythons, folder),
    ]


def stale_locks(family: LockFamily, folder: Path) -> list[Path]:
    """Return the locks that belong to no image of the matrix any more."""
    return sorted(path for path in folder.glob("*.txt") if path.name not in family.names)


def lock_problems(request: LockRequest, folder: Path) -> list[str]:
    """Return one line a problem of the lock that a request is for."""
    try:
        lock = read_lock(folder / request.file_name)
    except InputError as error:
        return [str(error)]
    unmet = [f"{request.file_name}: {line}" for line in _unmet(request, lock)]
    if unmet or lock.request_digest == request.digest:
        return unmet
    return [f"{request.file_name}: made for other requirements than the matrix has now"]


def _applicable(conditions: Iterable[Condition], image: Image) -> tuple[str, ...]:
    python = image.python_minor
    return tuple(
        one.require
        for one in conditions
        if (one.tensorflow is None or admits(one.tensorflow, image.tensorflow))
        and (one.python is None or admits(one.python, python))
    )


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


@cache
def _parsed(text: str) -> Requirement:
    return Requirement(text)
