"""What a lock must satisfy, computed from the matrix alone."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from packaging.specifiers import SpecifierSet

from imgbuild.matrix.images import Image, minor_of
from imgbuild.matrix.model import Condition


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
