"""What is known of the engine: where it is, whether it answers, what its BuildKit can do."""

from dataclasses import dataclass
from pathlib import Path

from imgbuild.doctor.concurrently import NoAnswerError, within
from imgbuild.engine.buildx import Buildx, find_buildx
from imgbuild.engine.client import Engine
from imgbuild.engine.endpoint import DEFAULT_HOST, resolve_host
from imgbuild.engine.faults import DOCTOR
from imgbuild.engine.probe import probe_build
from imgbuild.engine.types import EngineVersion
from imgbuild.errors import ImgbuildError
from imgbuild.settings import EngineSettings

ANSWER_SECONDS = 5.0
#: A build of a few bytes takes a second; the first one on a busy machine may take ten.
PROBE_SECONDS = 30.0


@dataclass(frozen=True)
class EngineState:
    """The engine that builds would use, and how far the doctor got with it."""

    host: str | None
    """Its address; ``None`` for Docker's default socket, or if there is no telling."""
    resolved: bool = True
    """Whether the address is known at all; a Docker context may be broken."""
    version: EngineVersion | None = None
    problem: str = ""
    """Why it does not answer."""
    buildx: Buildx | None = None
    buildx_problem: str = ""
    features_problem: str | None = None
    """Which BuildKit features are missing, or why that is unknown; ``None`` if none is."""
    lacks_features: bool = False
    """Whether some were tried and do not work: the engine is too old, or broken."""

    @property
    def address(self) -> str:
        """The address for people."""
        return self.host or DEFAULT_HOST

    @property
    def answers(self) -> bool:
        """Whether there is an engine at all."""
        return self.version is not None

    @property
    def data_root(self) -> Path | None:
        """Where its images are, if that is on this machine."""
        if self.version is None or not self.address.startswith("unix://"):
            return None
        return Path(self.version.root_dir)


def read_engine(settings: EngineSettings) -> EngineState:
    """Return the state of the engine that ``settings`` and the environment resolve to."""
    try:
        host = resolve_host(settings)
    except ImgbuildError as error:
        return EngineState(None, resolved=False, problem=_said(error))
    version, problem = _ask_version(host)
    buildx, buildx_problem = _look_for_buildx(settings)
    features, lacks = _probe(buildx, host) if version and buildx else (None, False)
    return EngineState(host, True, version, problem, buildx, buildx_problem, features, lacks)


def _ask_version(host: str | None) -> tuple[EngineVersion | None, str]:
    try:
        return within(ANSWER_SECONDS, Engine(host).version), ""
    except (ImgbuildError, NoAnswerError) as error:
        return None, _said(error)


def answers(host: str) -> bool:
    """Return whether an engine answers at ``host`` now."""
    return _ask_version(host)[0] is not None


def _look_for_buildx(settings: EngineSettings) -> tuple[Buildx | None, str]:
    try:
        return within(ANSWER_SECONDS, lambda: find_buildx(settings)), ""
    except (ImgbuildError, NoAnswerError) as error:
        return None, _said(error)


def _probe(buildx: Buildx, host: str | None) -> tuple[str | None, bool]:
    """Return what is wrong with builds, and whether that is for lack of features."""
    try:
        missing = within(PROBE_SECONDS, lambda: probe_build(buildx, host))
    except (ImgbuildError, NoAnswerError) as error:
        return _said(error), False
    if not missing:
        return None, False
    # One cause usually fails them all, so one reason says enough.
    names = ", ".join(one.name for one in missing)
    return f"does not work: {names} ({missing[0].reason})", True


def _said(error: Exception) -> str:
    """Return an error's text without the advice to ask the doctor: it is the doctor who asks."""
    return str(error).removesuffix(DOCTOR).strip()
