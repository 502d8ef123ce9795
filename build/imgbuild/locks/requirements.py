"""The requirements of locks by the matrix: check that locks satisfy them, and resolve with uv."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.utils import canonicalize_name

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.files import json_sha256, work_folder, write_texts
from imgbuild.core.parallel import in_parallel
from imgbuild.locks.conda import check_conda_locks, conda_lock_name, resolve_conda
from imgbuild.locks.constraints import applies, parse_requirement
from imgbuild.locks.lockfile import HEADER, Lock, add_dependents, parse_lock, read_lock
from imgbuild.locks.resolver import (
    ReadMetadata,
    ReadRequirements,
    Target,
    explain_refusal,
    lock_packages,
)
from imgbuild.matrix.components import CondaPython
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Condition, Matrix

if TYPE_CHECKING:
    from imgbuild.net.sites import Sites

#: The upstream of the matrix that stands for the Python package index.
INDEX = "python-index"
#: Wheels for glibc 2.17 and older: they run on every operating system of the matrix.
PLATFORM = "x86_64-manylinux2014"
#: uv knows a platform for each of these minor versions of glibc 2.
_UV_GLIBCS = range(31, 41)
_AT_ONCE = 4
#: Which locks to resolve; ``all`` keeps versions that still satisfy.
Scope = Literal["stale", "all", "upgrade"]


@dataclass(frozen=True)
class LockRequest:
    """Packages to resolve: requirements (installed) and constraints (only narrowing).

    ``alone``: nothing that the requirements depend on is installed. ``provided`` are distributions
    that another one of the lock stands for: they are left out. ``platform`` is uv's name of one.
    ``horovod`` are the packages that Horovod requires, which is in no lock.
    """

    file_name: str
    title: str
    python: str  # two numbers, e.g. "3.6"
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    alone: bool = False
    provided: tuple[str, ...] = ()
    platform: str = PLATFORM
    horovod: tuple[str, ...] = ()

    @property
    def target(self) -> Target:
        glibc = _parse_glibc(self.platform)
        return Target(self.python, self.platform, glibc)

    @property
    def digest(self) -> str:
        """The sha256 that a lock records of the request it was made for."""
        return json_sha256([self.python, self.requirements, self.constraints])


@dataclass(frozen=True)
class LockFamily:
    """The locks of Python packages and of conda interpreters that a command works on.

    ``names`` are those of all locks of the matrix.
    """

    requests: tuple[LockRequest, ...]
    pythons: Mapping[str, CondaPython]
    names: frozenset[str]


def lock_family(matrix: Matrix, stack: str | None = None) -> LockFamily:
    """Return the locks of one stack, or of all; InputError if there is no such stack."""
    if stack not in {None, *matrix.stacks}:
        known = ", ".join(matrix.stacks)
        raise InputError(f"No stack is called {stack!r}; there are: {known}.")
    names = set[str]()
    for version, python in matrix.python.items():
        if python.origin == "conda":
            names.add(conda_lock_name(version))
    requests: dict[str, LockRequest] = {}
    pythons: dict[str, CondaPython] = {}
    for image in all_images(matrix):
        names.update(image.lock_names)
        if stack in {None, image.stack}:
            # Images that share a lock share the request.
            for request in lock_requests(image):
                requests[request.file_name] = request
            if isinstance(image.python, CondaPython):
                version = image.version_of("python")
                pythons[version] = image.python
    return LockFamily(tuple(requests.values()), pythons, frozenset(names))


def lock_requests(image: Image) -> tuple[LockRequest, ...]:
    """Return the requests of one image's locks: packages, their build tools, MPI, CUDA."""
    mpi, python = image.mpi, image.python_minor
    builders = LockRequest(
        image.build_lock_name,
        title=f"what builds source distributions, Python {python}",
        python=python,
        requirements=_select_requirements(image.matrix.build_requirements, image),
    )
    requests = [_request_packages(image), builders]
    if image.mpi_lock_name and mpi.origin == "index":
        mpi_packages = LockRequest(
            image.mpi_lock_name,
            title=f"{image.mpi_name}, Python {python}",
            python=python,
            requirements=(mpi.runtime, mpi.build),
            # Headers demand the run time of their own release, not always the one that is wanted.
            alone=True,
        )
        requests.append(mpi_packages)
    if image.cuda_lock_name and image.index_cuda:
        cuda = image.version_of("cuda")
        compiler = image.cuda_requirements[-1]
        headers = LockRequest(
            image.cuda_lock_name,
            title=f"what is compiled for CUDA {cuda}, Python {python}",
            python=python,
            requirements=(*image.index_cuda.headers, compiler),
        )
        requests.append(headers)
    return tuple(requests)


def _request_packages(image: Image) -> LockRequest:
    """Return the request of the packages that an image installs."""
    matrix, python = image.matrix, image.python_minor
    tensorboard = image.version_of("tensorboard")
    keras = image.release.tf_keras
    requirements = [f"{image.distribution}=={image.tensorflow}", f"tensorboard=={tensorboard}"]
    if keras:
        requirements.append(f"tf-keras=={keras}")
    requirements += image.cuda_requirements
    requirements += _select_requirements(matrix.requirements, image)
    platform = PLATFORM
    if image.python.origin == "apt":  # a Python of an archive runs on that system alone
        platform = uv_platform(image.os.glibc)
    return LockRequest(
        image.lock_name,
        title=f"TensorFlow {image.tensorflow}, Python {python}, {image.variant}",
        python=python,
        requirements=tuple(requirements),
        constraints=_select_requirements(matrix.constraints, image),
        provided=tuple(image.provided),
        platform=platform,
        horovod=_horovod_requirements(image),
    )


def check_family(family: LockFamily, folder: Path) -> list[str]:
    """Return one line a problem: a lock missing, stale, unsatisfied, or belonging to no image."""
    problems: list[str] = []
    for request in family.requests:
        problems += check_lock(request, folder)
    for path in find_stale_locks(family, folder):
        problems.append(f"{path.name}: belongs to no image of the matrix")
    problems += check_conda_locks(family.pythons, folder)
    return problems


def find_stale_locks(family: LockFamily, folder: Path) -> list[Path]:
    stale = [path for path in folder.glob("*.txt") if path.name not in family.names]
    return sorted(stale)


def check_lock(request: LockRequest, folder: Path) -> list[str]:
    """Return one line a problem of the lock that a request is for."""
    try:
        lock = read_lock(folder / request.file_name, advice="")  # the list has its own
    except InputError as error:
        return [str(error)]
    problems = [*_find_unmet(request, lock)]
    if not problems and lock.request_digest != request.digest:
        problems.append("made for other requirements than the matrix has now")
    return [f"{request.file_name}: {problem}" for problem in problems]


def _select_requirements(conditions: Iterable[Condition], image: Image) -> tuple[str, ...]:
    return tuple(condition.require for condition in conditions if applies(condition, image))


def _horovod_requirements(image: Image) -> tuple[str, ...]:
    """Return the packages of the matrix that Horovod requires, each in any version."""
    conditions = [condition for condition in image.matrix.requirements if condition.horovod]
    requirements = _select_requirements(conditions, image)
    return tuple(parse_requirement(text).name for text in requirements)


def _find_unmet(request: LockRequest, lock: Lock) -> Iterator[str]:
    for text in (*request.requirements, *request.constraints):
        requirement = parse_requirement(text)
        name = requirement.name
        version = lock.versions.get(canonicalize_name(name))
        is_required = text in request.requirements
        if version is None:
            if is_required:
                yield f"{name} is missing; the matrix requires {text}"
        elif not requirement.specifier.contains(version, prereleases=True):
            verb = "requires" if is_required else "allows only"
            yield f"has {name} {version}; the matrix {verb} {text}"


def write_locks(  # noqa: PLR0913, PLR0917 - which locks, and how
    family: LockFamily,
    folder: Path,
    sites: "Sites",
    log: Callable[[str], None],
    read_metadata: ReadMetadata,
    read_requirements: ReadRequirements,
    scope: Scope = "stale",
) -> tuple[list[Path], list[str]]:
    """Resolve the locks that are not current, or all, and write every one or none.

    Locks of no image are removed. Return the changed paths, and a sentence on each conda channel
    that could not be read.
    """
    environment = index_environment(sites)
    upgrade = scope == "upgrade"
    requests = [*family.requests]
    if scope == "stale":
        requests = [request for request in requests if check_lock(request, folder)]

    def resolve_text(request: LockRequest) -> str:
        log(f"resolving {request.file_name}")
        return resolve_lock(
            request,
            folder,
            read_metadata,
            read_requirements,
            upgrade=upgrade,
            environment=environment,
        )

    paths = [folder / request.file_name for request in requests]
    resolved = in_parallel(resolve_text, requests, _AT_ONCE)
    texts = dict(zip(paths, resolved, strict=True))
    unread = []
    for version, python in family.pythons.items():
        text, faults = resolve_conda(version, python, folder, sites, upgrade=upgrade)
        path = folder / conda_lock_name(version)
        texts[path] = text
        unread += faults
    stale = find_stale_locks(family, folder)
    changed = write_texts(texts, stale)
    return changed, unread


def resolve_lock(  # noqa: PLR0913 - which lock, and how
    request: LockRequest,
    folder: Path,
    read_metadata: ReadMetadata,
    read_requirements: ReadRequirements,
    *,
    upgrade: bool,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Return the lock of ``request``; nothing is written.

    Versions of the lock in ``folder`` are kept where they still satisfy, unless ``upgrade``. uv
    runs in ``environment``, which may name another index.
    """
    known = folder / request.file_name
    previous = ""
    if known.exists() and not upgrade:
        previous = known.read_text("utf-8")
    # tf-keras asks for tensorflow, also beside tensorflow-cpu, which has the same files.
    overrides = [f"{name}; sys_platform == 'never'\n" for name in request.provided]
    options = ["--constraint", "constraints.txt", "--override", "overrides.txt", "requirements.in"]
    if request.alone:
        options.append("--no-deps")
    with work_folder("lock") as work:
        (work / "requirements.in").write_text("\n".join(request.requirements) + "\n")
        (work / "constraints.txt").write_text("\n".join(request.constraints) + "\n")
        (work / "overrides.txt").write_text("".join(overrides))
        body, result = lock_packages(
            options,
            request.target,
            folder=work,
            environment=environment,
            previous=previous,
            read_metadata=read_metadata,
        )
    if reason := explain_refusal(result, request.file_name):
        raise CheckFailedError(
            f"No set of packages satisfies {request.file_name} ({request.title}): {reason} "
            "If the release exists, change `requirements` or `constraints` in matrix.yaml."
        )
    text = f"{HEADER}\n# {request.title}\n# request: sha256:{request.digest}\n{body}"
    lock = parse_lock(text, request.file_name)
    requirements = read_requirements(lock, request.file_name, request.target)
    requirements = {**requirements, "horovod": request.horovod}
    dependents = _find_dependents(requirements, request.target)
    return add_dependents(text, dependents)


def _find_dependents(
    requirements: Mapping[str, Iterable[str]], target: Target
) -> dict[str, dict[str, str]]:
    """Return the dependents of each package, with the versions that each accepts."""
    environment = {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": target.python,
        "python_version": target.minor,
        "sys_platform": "linux",
    }
    dependents: dict[str, dict[str, str]] = {}
    for dependent, texts in requirements.items():
        for text in texts:
            required = parse_requirement(text)
            if required.marker and not required.marker.evaluate(environment):
                continue
            name = canonicalize_name(required.name)
            accepted = dependents.setdefault(name, {})
            versions = required.specifier & accepted.get(dependent, "")
            accepted[dependent] = str(versions)
    return dependents


def uv_platform(glibc: str) -> str:
    """Return what uv calls a system with this glibc: that of the newest wheels that run on it."""
    minor = int(glibc.partition(".")[2] or 0)
    known = [glibc_minor for glibc_minor in _UV_GLIBCS if glibc_minor <= minor]
    return f"x86_64-manylinux_2_{known[-1]}" if known else PLATFORM


def _parse_glibc(platform: str) -> str:
    """Return the glibc of a platform of uv: 2.36 of ``x86_64-manylinux_2_36``."""
    version = platform.partition("manylinux_")[2]
    return version.replace("_", ".") or Target.glibc


def index_environment(sites: "Sites") -> Mapping[str, str]:
    """Return the environment in which uv uses the mirror, logins and CAs of this machine.

    Without a mirror uv's own configuration files and variables name the index.
    """
    sites.check_logins()
    mirror = sites.settings.mirrors.get(INDEX)
    variables = {
        "UV_DEFAULT_INDEX": mirror.url if mirror else None,
        "NETRC": sites.settings.netrc,
        "SSL_CERT_FILE": sites.settings.ca_bundle,
    }
    chosen = {name: value for name, value in variables.items() if value}
    return {**os.environ, **chosen}
