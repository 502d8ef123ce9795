"""The locks of the matrix: all of their names, and those that a command works on."""

from collections.abc import Mapping
from dataclasses import dataclass

from imgbuild.errors import InputError
from imgbuild.locks.conda import conda_lock_name, conda_pythons
from imgbuild.locks.request import LockRequest, lock_requests
from imgbuild.matrix.images import all_images
from imgbuild.matrix.model import CondaPython, Matrix


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
