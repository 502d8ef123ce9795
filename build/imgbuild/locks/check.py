"""``imgbuild lock --check``: does every lock still satisfy the matrix? Offline, milliseconds."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from imgbuild.errors import InputError
from imgbuild.locks.lockfile import Lock, read_lock
from imgbuild.locks.request import LockRequest


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
