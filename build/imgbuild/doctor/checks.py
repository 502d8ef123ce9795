"""Check the engine, its disk, and the programs that imgbuild calls."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from imgbuild.build.prepare import needed_bytes
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import DEFAULT_HOST, Buildx, find_buildx, resolve_host
from imgbuild.engine.faults import DOCTOR
from imgbuild.engine.features import broken_feature
from imgbuild.engine.types import EngineVersion
from imgbuild.errors import ImgbuildError
from imgbuild.http import TransientError
from imgbuild.parallel import background
from imgbuild.process import find_program
from imgbuild.settings import EngineSettings

T = TypeVar("T")

#: Fixes what only the settings do not say yet.
WRITE = "imgbuild doctor --write"
#: The address of the engine that ``build/setup/engine.sh`` starts.
OWN_HOST = "unix:///run/imgbuild/docker.sock"
SETUP = "build/setup/engine.sh"
ANSWER_SECONDS = 5.0
#: A build of a few bytes takes a second; the first one on a busy machine may take ten.
PROBE_SECONDS = 30.0
GB = 10**9
#: A TensorFlow image is about 1 GB, its layers once more while it is built.
LOW, TOO_LOW = 10 * GB, 3 * GB


class Status(Enum):
    """The state of one thing: its name in JSON, its sign, its colour."""

    FINE = ("ok", "✓", "green")
    WARNING = ("warning", "!", "yellow")
    #: The only one that keeps a build from being done.
    MISSING = ("missing", "✗", "red")
    SKIPPED = ("skipped", "–", "dim")  # noqa: RUF001


@dataclass(frozen=True)
class Finding:
    """What was checked, its state, and the command or sentence that fixes it.

    ``choice`` are the settings that `WRITE` writes.
    """

    status: Status
    what: str
    detail: str
    fix: str | None = None
    choice: Mapping[str, Any] = field(default_factory=dict)


def answer_of(ask: Callable[[], T], seconds: float = ANSWER_SECONDS) -> tuple[T | None, str]:
    """Return the answer, or why there is none, without the advice to run the doctor."""
    try:
        return background(ask).result(seconds), ""
    except (ImgbuildError, TransientError, TimeoutError) as error:
        return None, str(error).removesuffix(DOCTOR).strip() or "it did not answer in time"


def install_command(*packages: str) -> str:
    """Return the command that installs Debian packages here, or what to do without apt."""
    if not shutil.which("apt-get"):
        return f"install {' '.join(packages)} with this system's package manager"
    return f"{_sudo()}apt-get install -y {' '.join(packages)}"


def _sudo() -> str:
    return "" if os.geteuid() == 0 else "sudo "


def check_engine(settings: EngineSettings, root: Path) -> Iterator[Finding]:
    """Yield the findings on the engine, buildx, BuildKit's features and the engine's disk.

    The engine is the one that the settings and the environment name. If none is named, and the
    default one does not answer, it is the one that the script in the checkout ``root`` started.
    """
    setup = "install Docker Engine 24 or later with its buildx plugin, and start it"
    if (root / SETUP).is_file():
        setup = f"{_sudo()}{SETUP}"
    host, version, found = _find_engine(settings, setup)
    yield found
    buildx, problem = answer_of(lambda: find_buildx(settings))
    if buildx:
        yield Finding(Status.FINE, "buildx", f"{buildx.version} ({buildx.path})")
    else:
        yield Finding(Status.MISSING, "buildx", problem, setup)
    if version and buildx:
        yield _check_features(buildx, host)
    else:
        yield Finding(Status.SKIPPED, "BuildKit", "unknown without an engine and buildx")
    if version and (host or DEFAULT_HOST).startswith("unix://"):
        prune = "docker builder prune; docker image prune"
        yield check_disk("disk, engine", Path(version.root_dir), prune, needed_bytes())


def _find_engine(
    settings: EngineSettings, setup: str
) -> tuple[str | None, EngineVersion | None, Finding]:
    """Return the address (None: Docker's default socket), the engine, if any, and the finding."""
    host, problem = answer_of(lambda: resolve_host(settings))
    if problem:
        return None, None, Finding(Status.MISSING, "engine", problem, setup)
    version, problem = answer_of(Engine(host).version)
    if version:
        return host, version, Finding(Status.FINE, "engine", _engine_text(host, version))
    own = None if host else answer_of(Engine(OWN_HOST).version)[0]
    if own:
        choice = {"engine": settings.model_copy(update={"host": OWN_HOST})}
        detail = _engine_text(OWN_HOST, own)
        return OWN_HOST, own, Finding(Status.MISSING, "engine", detail, WRITE, choice)
    if "permission denied" in problem.lower():
        fix = 'sudo usermod -aG docker "$USER", then log in again'
    elif host in {None, OWN_HOST}:
        fix = setup
    else:
        by_variable = os.environ.get("DOCKER_HOST") == host
        where = "DOCKER_HOST" if by_variable else "imgbuild.local.yaml or the Docker context"
        fix = f"start that engine, or take its address out of {where}"
    return host, None, Finding(Status.MISSING, "engine", problem, fix)


def _engine_text(host: str | None, engine: EngineVersion) -> str:
    store = "containerd image store" if engine.containerd_store else engine.storage_driver
    return f"{engine.version} at {host or DEFAULT_HOST}, {store}, {engine.architecture}"


def _check_features(buildx: Buildx, host: str | None) -> Finding:
    broken, problem = answer_of(lambda: broken_feature(buildx, host), PROBE_SECONDS)
    if broken:
        problem = f"a build with every feature that imgbuild uses fails: {broken}"
    if problem:
        install = install_command("docker.io", "docker-buildx")
        fix = f"if that engine is old, upgrade it: {install} (from where: {SETUP})"
        return Finding(Status.MISSING, "BuildKit", problem, fix)
    detail = "a build with every feature that imgbuild uses succeeded"
    return Finding(Status.FINE, "BuildKit", detail)


def check_disk(what: str, path: Path, fix: str, needed: int = TOO_LOW) -> Finding:
    """Return whether the file system where ``path`` is, or will be, has space for images."""
    try:
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Finding(Status.SKIPPED, what, f"{path}: {os.strerror(error.errno or 0)}")
    detail = f"{free / GB:.1f} GB free in {path}"
    if free < needed:
        return Finding(Status.MISSING, what, f"{detail}; a build needs {needed / GB:.1f} GB", fix)
    if free < LOW:
        return Finding(Status.WARNING, what, f"{detail}; an image takes about 1 GB", fix)
    return Finding(Status.FINE, what, detail)


def check_programs() -> Iterator[Finding]:
    """Yield whether suites can call ``docker``, and images can be labelled by ``git``."""
    docker = find_program("docker")
    if docker:
        yield Finding(Status.FINE, "docker client", f"{docker}, for the suites")
    else:
        detail = "missing; images can be built, but their suites cannot run (build --no-test)"
        fix = "put a docker client on PATH (docker-cli in newer Debian, docker.io in Ubuntu)"
        yield Finding(Status.WARNING, "docker client", detail, fix)
    if find_program("git"):
        detail = "images are labelled with the commit they were built from"
        yield Finding(Status.FINE, "git", detail)
    else:
        detail = "missing; images get no revision label, and --changed-since does not work"
        yield Finding(Status.WARNING, "git", detail, install_command("git"))
