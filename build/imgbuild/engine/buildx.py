"""Find the buildx program. It is called stand-alone, never through a ``docker`` on PATH.

The first ``docker`` on PATH may be a bare client without plugins, whose ``docker build`` silently
uses the legacy builder.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imgbuild.engine.endpoint import config_folder
from imgbuild.engine.step_limit import STEP_SECONDS
from imgbuild.errors import MachineError
from imgbuild.process import run
from imgbuild.settings import EngineSettings

PROGRAM = "docker-buildx"
ANSWER_SECONDS = 30
#: The Docker client's plugin folders on Linux, in its order, after the user's own.
PLUGIN_FOLDERS = (
    Path("/usr/local/lib/docker/cli-plugins"),
    Path("/usr/local/libexec/docker/cli-plugins"),
    Path("/usr/lib/docker/cli-plugins"),
    Path("/usr/libexec/docker/cli-plugins"),
)
_INSTALL = (
    "Install it (Debian and Ubuntu: 'apt-get install docker-buildx'; Docker's own packages: "
    "'apt-get install docker-buildx-plugin'), or name the program as engine.buildx in "
    "imgbuild.local.yaml."
)


@dataclass(frozen=True)
class Buildx:
    """The program and the version it gives itself, for reports only: features are probed.

    ``step_seconds`` is how long a step of a build may run with it; 0 is for ever.
    """

    path: Path
    version: str
    step_seconds: float = STEP_SECONDS


def find_buildx(
    settings: EngineSettings,
    step_seconds: float | None = None,
    environ: Mapping[str, str] = os.environ,
    folders: tuple[Path, ...] = PLUGIN_FOLDERS,
) -> Buildx:
    """Return the buildx of the settings, else the client's plugin, else the one on PATH.

    ``step_seconds`` is the limit for its steps, else the settings', else `STEP_SECONDS`.

    Raises:
        MachineError: there is none, or it does not run.

    """
    limits = (step_seconds, settings.step_timeout, STEP_SECONDS)
    limit = next(seconds for seconds in limits if seconds is not None)
    if settings.buildx:
        where = "engine.buildx of imgbuild.local.yaml"
        return _with_version(Path(settings.buildx), where, limit)
    candidates = [*_candidates(environ, folders)]
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return _with_version(path, "the plugin folders", limit)
    searched = ", ".join(str(path.parent) for path in candidates)
    raise MachineError(
        f"There is no {PROGRAM}, the Docker client's build plugin, on this machine (searched: "
        f"{searched}, PATH). {_INSTALL}"
    )


def _candidates(environ: Mapping[str, str], folders: tuple[Path, ...]) -> Iterator[Path]:
    own = (config_folder(environ), Path.home() / ".docker")
    for folder in dict.fromkeys((*(one / "cli-plugins" for one in own), *folders)):
        yield folder / PROGRAM
    found = shutil.which(PROGRAM, path=environ.get("PATH", ""))
    if found:
        yield Path(found)


def _with_version(path: Path, where: str, limit: float) -> Buildx:
    """Return the program with its version: ``github.com/docker/buildx v0.29.1 COMMIT``."""
    answer = run([str(path), "version"], timeout=ANSWER_SECONDS)
    if not answer.ok:
        raise MachineError(f"{path} (from {where}) does not run: {answer.last()}. {_INSTALL}")
    words = answer.output.split()
    version = words[1].removeprefix("v") if len(words) > 1 else "unknown"
    return Buildx(path, version, limit)


def build_environment(host: str | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of buildx: the user's, less what would change what is built."""
    dropped = {"DOCKER_CONTEXT", "BUILDX_BUILDER", "BUILDX_BAKE_FILE", "SOURCE_DATE_EPOCH"}
    kept = {key: value for key, value in environ.items() if key not in dropped}
    ours = {
        # Default provenance would give a new image id to every build that changes nothing.
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        # The definition is imgbuild's own: bake need not ask whether it may read its files.
        "BUILDX_BAKE_ENTITLEMENTS_FS": "0",
        # Nobody reads it, and resolving it costs a look-up an image.
        "BUILDX_METADATA_PROVENANCE": "disabled",
    }
    return {**kept, **ours, **({} if host is None else {"DOCKER_HOST": host})}
