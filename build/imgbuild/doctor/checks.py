"""Check the engine, its disk, the user's folders and the programs that imgbuild runs."""

import grp
import os
import pwd
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from imgbuild.build.prepare import needed_bytes
from imgbuild.core.errors import ImgbuildError, MachineError
from imgbuild.core.parallel import background
from imgbuild.core.process import find_program, run
from imgbuild.core.settings import ENGINES_OWN, EngineSettings
from imgbuild.core.user_folders import cache_dir, home, state_dir
from imgbuild.doctor.host_system import as_root, engine_setup, install_command
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import (
    DEFAULT_HOST,
    Buildx,
    find_buildx,
    is_reachable,
    resolve_host,
    with_builder,
)
from imgbuild.engine.faults import without_advice
from imgbuild.engine.features import broken_feature
from imgbuild.engine.types import AMD64, ARM64, EngineVersion
from imgbuild.net.http import TransientError

T = TypeVar("T")

#: The fix if only the settings are missing: the same command with this option.
WRITE = "--write"
#: The address of the engine that ``build/setup/engine.sh`` starts.
OWN_HOST = "unix:///run/imgbuild/docker.sock"
#: The fix if joining a group does not give access to the socket.
OTHER_ENGINE = "run this as root, or set DOCKER_HOST to an engine that this user may use"
ANSWER_SECONDS = 5.0
#: Time limit for a tiny test build. It takes a second, and up to ten seconds on a busy machine.
PROBE_SECONDS = 30.0
_CLIENT = "https://download.docker.com/linux/static/stable/x86_64/"
_BUILDX = "https://github.com/docker/buildx#manual-download"
GB = 10**9
#: A TensorFlow image takes about 1 GB, and about as much again during its build.
LOW, TOO_LOW = 10 * GB, 3 * GB


class Status(Enum):
    """The status of a finding: its name in JSON, its sign and its colour."""

    FINE = ("ok", "✓", "green")
    WARNING = ("warning", "!", "yellow")
    #: The only status that prevents a build.
    MISSING = ("missing", "✗", "red")
    SKIPPED = ("skipped", "–", "dim")  # noqa: RUF001


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    ``fix`` has one fix per line. ``choice`` are the settings that `WRITE` writes. ``group`` is the
    heading in the output.
    """

    status: Status
    what: str
    detail: str
    fix: str | None = None
    choice: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""


def ask_check(ask: Callable[[], T], seconds: float = ANSWER_SECONDS) -> tuple[T | None, str]:
    """Return the answer or the error, without the advice to run the doctor."""
    try:
        return background(ask).result(seconds), ""
    except (ImgbuildError, TransientError, TimeoutError, OSError) as error:
        return None, without_advice(error) or "it did not answer in time"


def find_engine(
    settings: EngineSettings, root: Path
) -> tuple[str | None, EngineVersion | None, Finding]:
    """Return the engine's address (None: Docker's default socket), the engine, and the finding.

    The settings and the environment name the engine. If they name none, and the default engine does
    not answer, use the engine that the setup script in the checkout ``root`` starts.
    """
    host, problem = ask_check(lambda: resolve_host(settings))
    if problem:
        return None, None, Finding(Status.MISSING, "engine", problem)
    version, problem = ask_check(Engine(host).version)
    if version:
        return host, version, Finding(Status.FINE, "engine", _describe_engine(host, version))
    own = None if host else ask_check(Engine(OWN_HOST).version)[0]
    if own:
        choice = {"engine": settings.model_copy(update={"host": OWN_HOST})}
        detail = _describe_engine(OWN_HOST, own)
        return OWN_HOST, own, Finding(Status.MISSING, "engine", detail, WRITE, choice)
    if "permission denied" in problem.lower():
        return host, None, Finding(Status.MISSING, "engine", *_refusal(host or DEFAULT_HOST))
    if host in {None, OWN_HOST}:
        fix = engine_setup(root)
    else:
        by_variable = os.environ.get("DOCKER_HOST") == host
        where = "DOCKER_HOST" if by_variable else "imgbuild.local.yaml or the Docker context"
        fix = f"start that engine, or remove its address from {where}"
    return host, None, Finding(Status.MISSING, "engine", problem, fix)


def _refusal(host: str) -> tuple[str, str]:
    """Return why this user cannot use an engine's socket, and the fix."""
    socket = host.removeprefix("unix://")
    detail = f"this user has no permission for its socket {socket}"
    with suppress(OSError, KeyError):  # the folder is not readable, or the user has no name
        group, user = grp.getgrgid(os.stat(socket).st_gid), pwd.getpwuid(os.geteuid())  # noqa: PTH116
        if user.pw_name in group.gr_mem:
            detail += f": this login is older than the membership in the group {group.gr_name}"
            return detail, f"newgrp {group.gr_name}, or log in again"
        if group.gr_gid:
            join = as_root(f"usermod -aG {group.gr_name} {user.pw_name}")
            return detail, f"{join}, then log in again (this group is equivalent to root)"
    return detail, OTHER_ENGINE


def check_engine(
    settings: EngineSettings,
    root: Path,
    host: str | None,
    version: EngineVersion | None,
    platforms: Sequence[str] = (AMD64,),
) -> Iterator[Finding]:
    """Yield the findings for buildx, BuildKit's features for each platform, and the disk."""
    buildx, problem = ask_check(lambda: find_buildx(settings, host))
    if buildx:
        yield Finding(Status.FINE, "buildx", f"{buildx.version} ({buildx.path})")
    else:
        fix = f"{engine_setup(root)}\nor put buildx into ~/.docker/cli-plugins: {_BUILDX}"
        yield Finding(Status.MISSING, "buildx", problem, fix)
    if version and buildx:
        for name, platform in product(settings.builders, platforms):
            finding = _check_features(buildx, name, root, platform)
            if platform != AMD64:
                finding = replace(finding, what=f"{finding.what}, {platform}")
            if name == ENGINES_OWN and version.platform != platform and finding.fix is None:
                finding = replace(finding, detail=f"{finding.detail}, emulated: slow")
            yield finding
    else:
        yield Finding(Status.SKIPPED, "BuildKit", "unknown without an engine and buildx")
    if version and (host or DEFAULT_HOST).startswith("unix://"):
        prune = "docker builder prune; docker image prune"
        yield check_disk("disk, engine", Path(version.root_dir), prune, needed_bytes())


def _describe_engine(host: str | None, engine: EngineVersion) -> str:
    store = "containerd image store" if engine.containerd_store else engine.storage_driver
    other = ""
    if engine.platform == ARM64:
        other = "; builds images for linux/arm64, unless --platform is linux/amd64"
    elif engine.platform != AMD64:
        other = "; no image is for it"
    return f"{engine.version} at {host or DEFAULT_HOST}, {store}, {engine.architecture}{other}"


def _check_features(buildx: Buildx, builder: str, root: Path, platform: str) -> Finding:
    """Return whether a builder supports all features, and can load its images into the engine."""
    own = builder == ENGINES_OWN
    what = "BuildKit" if own else f"builder {builder}"
    tried = "a build with every feature that imgbuild uses"
    of, problem = ask_check(lambda: with_builder(buildx, builder))
    if of is None:
        return Finding(Status.MISSING, what, problem)
    if not own and not is_reachable(of):
        start = f"docker buildx inspect --bootstrap {builder}"
        return Finding(Status.MISSING, what, "none of its nodes answers", start)
    broken, problem = ask_check(lambda: broken_feature(of, platform), PROBE_SECONDS)
    if broken:
        fix = f"if that engine is old, upgrade it: {engine_setup(root)}" if own else None
        return Finding(Status.MISSING, what, f"{tried} fails: {broken}", fix)
    if problem:
        return Finding(Status.MISSING, what, problem)
    return Finding(Status.FINE, what, f"{tried} succeeded")


def check_home() -> Iterator[Finding]:
    """Yield a finding if this user has no home folder; other checks then use a missing folder."""
    try:
        home()
    except MachineError as error:
        os.environ["HOME"] = "/nonexistent"  # like Debian's users without a home
        yield Finding(Status.MISSING, "home", str(error), group="This user")


def check_folders() -> Iterator[Finding]:
    """Yield whether builds can write to or create their folders, and the space for the cache."""
    cache = cache_dir()
    folders = {
        "XDG_CACHE_HOME": cache,
        "XDG_STATE_HOME": state_dir(),
        # buildx stores its state in the configuration folder of the Docker client.
        "DOCKER_CONFIG": Path(os.environ.get("DOCKER_CONFIG") or home() / ".docker"),
        "TMPDIR": Path(os.environ.get("TMPDIR") or "/tmp"),  # noqa: S108 - as Python does
    }
    closed = [
        name for name, path in folders.items() if not os.access(_find_existing(path), os.W_OK)
    ]
    shown = ", ".join(str(folders[name]) for name in closed or folders)
    if closed:
        fix = f"set HOME to your own folder, or set {', '.join(closed)}"
        yield Finding(Status.MISSING, "folders", f"this user cannot write to {shown}", fix)
    else:
        yield Finding(Status.FINE, "folders", shown)
    yield check_disk("disk, cache", cache, f"rm -r {cache}, or set XDG_CACHE_HOME")


def _find_existing(path: Path) -> Path:
    """Return the path, or its nearest parent that this user can see."""
    return next(p for p in (path, *path.parents) if os.path.exists(p))  # noqa: PTH110 - no errors


def check_disk(what: str, path: Path, fix: str, needed: int = TOO_LOW) -> Finding:
    """Return whether the file system of ``path``, which may not exist yet, has enough space."""
    try:
        free = shutil.disk_usage(_find_existing(path)).free
    except OSError as error:
        return Finding(Status.SKIPPED, what, f"{path}: {os.strerror(error.errno or 0)}")
    detail = f"{free / GB:.1f} GB free in {path}"
    if free < needed:
        return Finding(Status.MISSING, what, f"{detail}; a build needs {needed / GB:.1f} GB", fix)
    if free < LOW:
        return Finding(Status.WARNING, what, f"{detail}; an image takes about 1 GB", fix)
    return Finding(Status.FINE, what, detail)


def check_programs(root: Path) -> Iterator[Finding]:
    """Yield whether ``docker`` for the suites and ``git`` for the labels are installed."""
    docker = find_program("docker")
    if docker:
        yield Finding(Status.FINE, "docker client", f"{docker}, for the suites")
    else:
        detail = "missing; images can be built, but their suites cannot run (build --no-test)"
        fix = f"install docker-cli, docker.io or docker; without root: put {_CLIENT} on PATH"
        yield Finding(Status.WARNING, "docker client", detail, fix)
    if find_program("git"):
        yield _check_git(root)
    else:
        detail = "missing; images get no revision label, which `verify --rebuild` needs"
        yield Finding(Status.WARNING, "git", detail, install_command("git"))


def _check_git(root: Path) -> Finding:
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    result = run(command, env={**os.environ, "LC_ALL": "C"}, timeout=ANSWER_SECONDS)
    if "dubious ownership" in result.errors:  # the checkout belongs to another user
        detail = f"rejects {root}, which belongs to another user: images get no revision label"
        fix = f"git config --global --add safe.directory {shlex.quote(str(root))}"
        return Finding(Status.WARNING, "git", detail, fix)
    return Finding(Status.FINE, "git", "images of a Git checkout are labelled with its commit")
