"""Read the requirements of locks from the matrix, check the locks, and resolve them with uv."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.pylock import Pylock
from packaging.tags import Tag
from packaging.utils import canonicalize_name

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.files import json_sha256, work_folder, write_texts
from imgbuild.core.parallel import in_parallel
from imgbuild.locks.conda import check_conda_locks, conda_lock_name, resolve_conda
from imgbuild.locks.constraints import applies, parse_requirement
from imgbuild.locks.lockfile import (
    HEADER,
    UNLIKE,
    Lock,
    add_dependents,
    parse_lock,
    read_lock,
    read_lock_text,
)
from imgbuild.locks.resolver import (
    ReadMetadata,
    ReadRequirements,
    Target,
    explain_refusal,
    find_files,
    lock_packages,
)
from imgbuild.matrix.components import CondaPython
from imgbuild.matrix.evidence import MACHINES, file_tags, tag_machine
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Condition, Matrix

if TYPE_CHECKING:
    from imgbuild.net.sites import Sites

#: The name of the Python package index among the upstreams of the matrix.
INDEX = "python-index"
#: uv's platform with glibc 2.17. Its wheels run on every operating system of the matrix.
PLATFORM = "x86_64-manylinux2014"
#: The minor versions of glibc 2 for which uv has a platform.
_UV_GLIBCS = range(31, 41)
_AT_ONCE = 4
#: Part of the statement about a wheel that is poorer than amd64's.
_NOT_COMPILED = "has no compiled files for"
#: Which locks to resolve: only locks that do not satisfy the matrix (``stale``), or all. Versions
#: that still satisfy the matrix are kept, except with ``upgrade``. A lock for arm64 takes those of
#: amd64.
Scope = Literal["stale", "all", "upgrade"]


@dataclass(frozen=True)
class LockRequest:
    """The packages of a lock: requirements to install, and constraints that only limit versions.

    If ``alone`` is true, the dependencies of the requirements are not installed. ``provided`` names
    distributions to leave out because another one in the lock has the same files. ``platform`` is
    one of uv's platforms. ``horovod`` names the requirements of Horovod, which is in no lock.
    ``like`` is the file name of the lock for amd64 whose versions a lock for another architecture
    takes wherever that architecture has a file of them.
    """

    file_name: str
    title: str
    python: str  # without a patch version, for example "3.6"
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    alone: bool = False
    provided: tuple[str, ...] = ()
    platform: str = PLATFORM
    horovod: tuple[str, ...] = ()
    like: str = ""

    @property
    def target(self) -> Target:
        glibc = _parse_glibc(self.platform)
        return Target(self.python, self.platform, glibc)

    @property
    def digest(self) -> str:
        """The sha256 of the Python version, requirements and constraints; the lock records it."""
        return json_sha256([self.python, self.requirements, self.constraints])


@dataclass(frozen=True)
class LockFamily:
    """The locks of Python packages and of conda interpreters that a command works on.

    ``names`` has the file names of all locks of the matrix, including other stacks.
    """

    requests: tuple[LockRequest, ...]
    pythons: Mapping[str, CondaPython]
    names: frozenset[str]


def lock_family(matrix: Matrix, stack: str | None = None) -> LockFamily:
    """Return the locks of one stack, or of all stacks.

    InputError: the matrix has no such stack.
    """
    if stack not in {None, *matrix.stacks}:
        known = ", ".join(matrix.stacks)
        raise InputError(f"There is no stack {stack!r}. Use one of: {known}.")
    names = set[str]()
    for version, python in matrix.python.items():
        if python.origin == "conda":
            names.add(conda_lock_name(version))
    requests: dict[str, LockRequest] = {}
    pythons: dict[str, CondaPython] = {}
    for image in all_images(matrix):
        names.update(image.lock_names)
        if stack in {None, image.stack}:
            # Images that share a lock have the same request.
            for request in lock_requests(image):
                requests[request.file_name] = request
            if isinstance(image.python, CondaPython):
                version = image.version_of("python")
                pythons[version] = image.python
    # Stacks share locks, so the lock for amd64 decides, not the stack of the image for arm64.
    others = {image.lock_name: _request_packages(image) for image in all_images(matrix, "arm64")}
    names.update(others)
    requests |= {name: other for name, other in others.items() if other.like in requests}
    return LockFamily(tuple(requests.values()), pythons, frozenset(names))


def lock_requests(image: Image) -> tuple[LockRequest, ...]:
    """Return the requests of one image's locks: packages, build tools, MPI and CUDA headers."""
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
            # The headers require the runtime of their own release, which may not be the pinned one.
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
    """Return the request for the packages that an image installs."""
    matrix, python = image.matrix, image.python_minor
    tensorboard = image.version_of("tensorboard")
    keras = image.release.tf_keras
    requirements = [f"{image.distribution}=={image.tensorflow}", f"tensorboard=={tensorboard}"]
    if keras:
        requirements.append(f"tf-keras=={keras}")
    requirements += image.cuda_requirements
    requirements += _select_requirements(matrix.requirements, image)
    # A distribution's own Python runs on no other system.
    glibc = image.os.glibc if image.python.origin == "apt" else Target.glibc
    like = of_other = ""
    if image.architecture != "amd64":
        like = replace(image, architecture="amd64").lock_name
        of_other = f", {image.architecture}"
    return LockRequest(
        image.lock_name,
        title=f"TensorFlow {image.tensorflow}, Python {python}, {image.variant}{of_other}",
        python=python,
        requirements=tuple(requirements),
        constraints=_select_requirements(matrix.constraints, image),
        provided=tuple(image.provided),
        platform=uv_platform(glibc, image.machine),
        horovod=_horovod_requirements(image),
        like=like,
    )


def check_family(family: LockFamily, folder: Path) -> list[str]:
    """Return a line for each problem: a lock that is missing, does not fit, or has no image."""
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
    """Return a line for each problem of the lock of ``request``."""
    try:
        lock = read_lock(folder / request.file_name, advice="")  # the caller gives the advice
    except InputError as error:
        return [str(error)]
    problems = [*_find_unmet(request, lock)]
    if not problems and lock.request_digest != request.digest:
        problems.append("out of date: the requirements in the matrix have changed")
    if request.like:
        with suppress(InputError):  # the check of that lock reports it
            other = read_lock(folder / request.like)
            problems += _find_wrong_statements(request, lock, other)
    return [f"{request.file_name}: {problem}" for problem in problems]


def _select_requirements(conditions: Iterable[Condition], image: Image) -> tuple[str, ...]:
    return tuple(condition.require for condition in conditions if applies(condition, image))


def _horovod_requirements(image: Image) -> tuple[str, ...]:
    """Return the names of the packages that the matrix marks as requirements of Horovod."""
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


def _find_differences(lock: Lock, other: Lock) -> Iterator[str]:
    """Yield how the packages of a lock differ from those of the lock for amd64."""
    for name in sorted({*lock.versions, *other.versions}):
        version, usual = lock.versions.get(name), other.versions.get(name)
        if usual is None:
            yield f"{name} {version} is added"
        elif version is None:
            yield f"{name} {usual} is left out"
        elif version != usual:
            yield f"{name} is {version} instead of {usual}"


def _find_wrong_statements(request: LockRequest, lock: Lock, other: Lock) -> Iterator[str]:
    """Yield the differences from the lock for amd64 that are not stated, or stated and not true."""
    differences = [*_find_differences(lock, other)]
    for text in differences:
        if text not in lock.unlike:
            yield f"out of date: unlike {request.like}, {text}"
    for text in lock.unlike:
        if text not in differences and _NOT_COMPILED not in text:
            yield f"out of date: states that, unlike {request.like}, {text}"


def _find_poorer_wheels(
    request: LockRequest, lock: Lock, usual: Target, folder: Path, environment: Mapping[str, str]
) -> Iterator[str]:
    """Yield the packages with compiled files whose wheel for this architecture has none."""
    places = [folder / "own", folder / "usual"]
    for place in places:
        place.mkdir()
    own = find_files(request.file_name, lock.versions, request.target, places[0], environment)
    versions = {name: lock.versions[name] for name in _pure_wheels(own)}
    pure = _pure_wheels(find_files(request.like, versions, usual, places[1], environment))
    for name in sorted(versions.keys() - pure):
        machine = request.target.machine
        yield f"{name} {versions[name]} {_NOT_COMPILED} {machine}"


def _pure_wheels(files: Pylock) -> set[str]:
    """Return the packages whose wheels have no compiled files, by the tags in their names."""
    pure = set[str]()
    for package in files.packages:
        tags = [file_tags(wheel.filename) for wheel in package.wheels or ()]
        if tags and not any(map(tag_machine, set[Tag]().union(*tags))):
            pure.add(str(package.name))
    return pure


def write_locks(  # noqa: PLR0913, PLR0917 - which locks, and how
    family: LockFamily,
    folder: Path,
    sites: "Sites",
    log: Callable[[str], None],
    read_metadata: ReadMetadata,
    read_requirements: ReadRequirements,
    scope: Scope = "stale",
) -> tuple[list[Path], list[str]]:
    """Resolve the locks in ``scope``, and write all of them or none.

    Conda locks are resolved in every scope. Locks that no image uses are deleted. Return the
    changed paths, and an error for each conda channel that could not be read.
    """
    environment = index_environment(sites)
    upgrade = scope == "upgrade"
    usual = {request.file_name: request for request in family.requests if not request.like}
    texts: dict[Path, str] = {}

    def is_due(request: LockRequest) -> bool:
        is_like_resolved = folder / request.like in texts
        return is_like_resolved or scope != "stale" or bool(check_lock(request, folder))

    def resolve_text(request: LockRequest) -> str:
        log(f"resolving {request.file_name}")
        if request.like:
            like = folder / request.like
            usual_text = texts.get(like) or read_lock_text(like)
            return resolve_like(
                request,
                usual[request.like].target,
                usual_text,
                read_metadata,
                read_requirements,
                environment=environment,
            )
        return resolve_lock(
            request,
            folder,
            read_metadata,
            read_requirements,
            upgrade=upgrade,
            environment=environment,
        )

    # Those for amd64 come first, because the others take their versions.
    others = [request for request in family.requests if request.like]
    for group in (usual.values(), others):
        due = [request for request in group if is_due(request)]
        resolved = in_parallel(resolve_text, due, _AT_ONCE)
        paths = [folder / request.file_name for request in due]
        texts |= dict(zip(paths, resolved, strict=True))
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
    """Resolve ``request``, and return the text of its lock; nothing is written.

    Versions of the lock in ``folder`` are kept if they still satisfy the request, unless
    ``upgrade``. uv runs in ``environment``, which may name another index.

    CheckFailedError: no set of packages satisfies the request.
    MachineError: the package index cannot be reached.
    """
    known = folder / request.file_name
    previous = ""
    if known.exists() and not upgrade:
        previous = known.read_text("utf-8")
    return _resolve(request, previous, read_metadata, read_requirements, environment)


def resolve_like(  # noqa: PLR0913, PLR0917 - which lock, and how
    request: LockRequest,
    usual: Target,
    usual_text: str,
    read_metadata: ReadMetadata,
    read_requirements: ReadRequirements,
    environment: Mapping[str, str],
) -> str:
    """Resolve the ``request`` of another architecture than amd64; return the text of its lock.

    ``usual_text`` is the lock of the same image for amd64, whose target is ``usual``. The new lock
    has its versions if there are files of them for the architecture, and states each difference:
    other packages, other versions, and wheels without the compiled files that amd64's have.

    The errors are those of `resolve_lock`.
    """
    text = _resolve(request, usual_text, read_metadata, read_requirements, environment)
    lock = parse_lock(text, request.file_name)
    differences = [*_find_differences(lock, parse_lock(usual_text, request.like))]
    with work_folder("lock") as work:
        differences += _find_poorer_wheels(request, lock, usual, work, environment)
    end = text.index("\n", text.index("# request:")) + 1
    stated = "".join(f"{UNLIKE} {request.like}: {difference}\n" for difference in differences)
    return text[:end] + stated + text[end:]


def _resolve(
    request: LockRequest,
    previous: str,
    read_metadata: ReadMetadata,
    read_requirements: ReadRequirements,
    environment: Mapping[str, str],
) -> str:
    # tf-keras requires tensorflow, even if tensorflow-cpu with the same files is installed.
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
            "If these releases exist, change `requirements` or `constraints` in matrix.yaml."
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
    """Return the dependents of each package, with the versions that each dependent accepts."""
    environment = {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": target.machine,
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


def uv_platform(glibc: str, machine: str = MACHINES["amd64"]) -> str:
    """Return uv's platform with the newest wheels that run on a machine with this glibc."""
    minor = int(glibc.partition(".")[2] or 0)
    known = [glibc_minor for glibc_minor in _UV_GLIBCS if glibc_minor <= minor]
    return f"{machine}-manylinux_2_{known[-1]}" if known else f"{machine}-manylinux2014"


def _parse_glibc(platform: str) -> str:
    """Return the glibc version in the name of a uv platform: 2.36 in ``x86_64-manylinux_2_36``."""
    version = platform.partition("manylinux_")[2]
    return version.replace("_", ".") or Target.glibc


def index_environment(sites: "Sites") -> Mapping[str, str]:
    """Return the environment in which uv uses this machine's mirror, logins and CA certificates.

    Without a mirror, uv's own configuration files and variables name the index.

    InputError: a login would be sent over plain http.
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
