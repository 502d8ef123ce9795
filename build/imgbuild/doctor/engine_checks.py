"""Check the engine, buildx, and the features of BuildKit."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from imgbuild.doctor.show import Finding, Status, install_command, sudo
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import DEFAULT_HOST, Buildx, find_buildx, resolve_host
from imgbuild.engine.faults import DOCTOR
from imgbuild.engine.features import broken_feature
from imgbuild.engine.types import EngineVersion
from imgbuild.errors import ImgbuildError
from imgbuild.parallel import background
from imgbuild.project import Project
from imgbuild.settings import EngineSettings

T = TypeVar("T")

ANSWER_SECONDS = 5.0
#: A build of a few bytes takes a second; the first one on a busy machine may take ten.
PROBE_SECONDS = 30.0
#: The address of the engine that ``build/setup/engine.sh`` starts.
OWN_HOST = "unix:///run/imgbuild/docker.sock"
SETUP = "build/setup/engine.sh"


@dataclass(frozen=True)
class EngineState:
    """The engine that builds would use; each problem is empty if there is none.

    ``host`` is ``None`` for Docker's default socket. With ``unrecorded`` the engine is the one that
    imgbuild's script started, and the settings do not name it yet.
    """

    host: str | None
    version: EngineVersion | None = None
    problem: str = ""
    buildx: Buildx | None = None
    buildx_problem: str = ""
    features_problem: str = ""
    unrecorded: bool = False

    @property
    def address(self) -> str:
        """The address for people."""
        return self.host or DEFAULT_HOST

    @property
    def data_root(self) -> Path | None:
        """The folder of the engine's images, if it is on this machine."""
        if self.version is None or not self.address.startswith("unix://"):
            return None
        return Path(self.version.root_dir)


def read_engine(settings: EngineSettings) -> EngineState:
    """Return the state of the engine that ``settings`` and the environment resolve to.

    If no engine is named and the default one does not answer, of imgbuild's own one.
    """
    try:
        host = resolve_host(settings)
    except ImgbuildError as error:
        return EngineState(None, problem=_text(error), buildx_problem="not looked for")
    version, problem = _answered(Engine(host).version)
    unrecorded = False
    if host is None and version is None:
        own, _ = _answered(Engine(OWN_HOST).version)
        if own:
            host, version, unrecorded = OWN_HOST, own, True
    buildx, buildx_problem = _answered(lambda: find_buildx(settings))
    features = ""
    if version and buildx:
        broken, features = _answered(lambda: broken_feature(buildx, host), PROBE_SECONDS)
        if broken:
            features = f"a build with every feature that imgbuild uses fails: {broken}"
    return EngineState(host, version, problem, buildx, buildx_problem, features, unrecorded)


def _answered(ask: Callable[[], T], seconds: float = ANSWER_SECONDS) -> tuple[T | None, str]:
    """Return the answer, or why there is none."""
    try:
        return background(ask).result(seconds), ""
    except (ImgbuildError, TimeoutError) as error:
        return None, _text(error)


def _text(error: Exception) -> str:
    """Return an error's text without the advice to run the doctor, which runs already."""
    return str(error).removesuffix(DOCTOR).strip() or "it did not answer in time"


def check_engine(state: EngineState, project: Project, *, writing: bool) -> list[Finding]:
    """Return the rows of the engine, of buildx and of BuildKit's features."""
    setup = "install Docker Engine 24 or later with its buildx plugin, and start it"
    if (project.root / SETUP).is_file():
        setup = f"{sudo()}{SETUP}"
    buildx = Finding(Status.MISSING, "buildx", state.buildx_problem, setup)
    if state.buildx:
        buildx = Finding(Status.FINE, "buildx", f"{state.buildx.version} ({state.buildx.path})")
    return [_engine_row(state, setup, writing=writing), buildx, _features_row(state)]


def _engine_row(state: EngineState, setup: str, *, writing: bool) -> Finding:
    found = state.version
    if found is not None and (writing or not state.unrecorded):
        store = "containerd image store" if found.containerd_store else found.storage_driver
        detail = f"{found.version} at {state.address}, {store}, {found.architecture}"
        return Finding(Status.FINE, "engine", detail)
    if found is not None:
        detail = f"{OWN_HOST} answers, but imgbuild.local.yaml does not name it"
        return Finding(Status.MISSING, "engine", detail, "imgbuild doctor --write")
    if "permission denied" in state.problem.lower():
        fix = 'sudo usermod -aG docker "$USER", then log in again'
    elif state.host in {None, OWN_HOST}:
        fix = setup
    else:
        by_variable = os.environ.get("DOCKER_HOST") == state.host
        where = "DOCKER_HOST" if by_variable else "imgbuild.local.yaml or the Docker context"
        fix = f"start that engine, or take its address out of {where}"
    return Finding(Status.MISSING, "engine", state.problem, fix)


def _features_row(state: EngineState) -> Finding:
    if state.version is None or state.buildx is None:
        return Finding(Status.SKIPPED, "BuildKit", "unknown without an engine and buildx")
    if state.features_problem:
        install = install_command("docker.io", "docker-buildx")
        fix = f"if that engine is old, upgrade it: {install} (from where: {SETUP})"
        return Finding(Status.MISSING, "BuildKit", state.features_problem, fix)
    detail = "a build with every feature that imgbuild uses succeeded"
    return Finding(Status.FINE, "BuildKit", detail)
