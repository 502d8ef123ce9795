"""Find the engine and the buildx program: by the settings, else as the Docker client does.

buildx is called stand-alone, since the first ``docker`` on PATH may be a bare client without
plugins, whose ``docker build`` silently uses the legacy builder.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import parse_json, sha256
from imgbuild.core.process import Finished, run
from imgbuild.core.scalars import NO_SSH
from imgbuild.core.settings import ENGINES_OWN, EngineSettings
from imgbuild.core.user_folders import home

#: The Docker client's default; ``None`` stands for it.
DEFAULT_HOST = "unix:///var/run/docker.sock"
ANSWER_SECONDS = 30
#: Time to remove 100 GB of build cache from a slow disk.
PRUNE_SECONDS = 1800
#: The Docker client's plugin folders on Linux, in its order, after the user's own.
PLUGIN_FOLDERS = (
    "/usr/local/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
)
_PROGRAM = "docker-buildx"
#: The first word that buildx prints for ``version``.
_MODULE = "github.com/docker/buildx"
_INSTALL = (
    "Install it (Debian and Ubuntu: 'apt-get install docker-buildx'; Docker's own packages: "
    "'apt-get install docker-buildx-plugin'), or name the program as engine.buildx in "
    "imgbuild.local.yaml."
)


@dataclass(frozen=True)
class Buildx:
    """The program, and the engine at ``host`` that gets what it builds.

    ``version`` is what the program calls itself, for reports only: features are probed.
    ``step_seconds`` is how long a step of a build may run; 0 is for ever. ``builder`` builds in
    place of the engine's own BuildKit, which sees the engine's images.
    """

    path: Path
    version: str
    host: str | None = None
    step_seconds: float = 0.0
    builder: str | None = None

    @property
    def builder_option(self) -> str:
        return f"--builder={self.builder or ENGINES_OWN}"


def resolve_host(settings: EngineSettings) -> str | None:
    """Return the engine's address, or ``None`` for Docker's default socket.

    The order is the Docker client's, behind the settings: ``engine.host``, ``DOCKER_HOST``,
    ``DOCKER_CONTEXT``, the context that ``docker context use`` chose. docker-py itself knows no
    contexts.

    InputError: the address is one of ssh.
    MachineError: the context does not exist, or needs TLS files that only the client finds.
    """
    host = settings.host or os.environ.get("DOCKER_HOST") or _host_of_context()
    if host and host.startswith("ssh://"):
        raise InputError(f"DOCKER_HOST or the Docker context: {NO_SSH}.")
    return host


def docker_command(host: str | None) -> str:
    """Return the command of the Docker client for an engine: ``docker -H HOST``."""
    return f"docker -H {host}" if host and host != DEFAULT_HOST else "docker"


def _host_of_context() -> str | None:
    folder = _config_folder()
    name = os.environ.get("DOCKER_CONTEXT") or _read_object(folder / "config.json").get(
        "currentContext"
    )
    if not name or name == "default":
        return None
    key = sha256(str(name).encode())
    if (folder / "contexts" / "tls" / key).is_dir():
        raise MachineError(
            f"The Docker context {name!r} uses its own TLS files, which imgbuild does not read. "
            "Set DOCKER_HOST, DOCKER_CERT_PATH and DOCKER_TLS_VERIFY=1 instead."
        )
    meta = folder / "contexts" / "meta" / key / "meta.json"
    try:
        host = str(_read_object(meta)["Endpoints"]["docker"]["Host"])
    except (KeyError, TypeError):
        host = ""
    if not host:
        raise MachineError(
            f"The Docker context {name!r} is selected, and {meta} does not name its engine "
            "(Endpoints.docker.Host). Choose another with 'docker context use default', or set "
            "engine.host in imgbuild.local.yaml."
        )
    return host


def _config_folder() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or home() / ".docker")


def _read_object(path: Path) -> Mapping[str, Any]:
    """Return a JSON object; an empty one where there is none."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise MachineError(
            f"{path} cannot be read: {what}. Correct it, or let DOCKER_CONFIG name another folder."
        ) from error
    return document if isinstance(document, dict) else {}


def find_buildx(
    settings: EngineSettings, host: str | None, step_seconds: float | None = None
) -> Buildx:
    """Return the buildx of the settings, else the client's plugin, else the one on PATH.

    ``host`` is the engine's address, as `resolve_host` returns it. ``step_seconds`` is the limit
    for a step, in place of the settings'.

    MachineError: there is no buildx, or it does not run.
    """
    own_folders = dict.fromkeys((_config_folder(), home() / ".docker"))
    searched = [*(f"{folder}/cli-plugins" for folder in own_folders), *PLUGIN_FOLDERS]
    path = os.pathsep.join([*searched, os.environ.get("PATH", "")])
    program = settings.buildx or shutil.which(_PROGRAM, path=path)
    if program is None:
        raise MachineError(
            f"There is no {_PROGRAM}, the Docker client's build plugin, on this machine (searched: "
            f"{', '.join(searched)}, PATH). {_INSTALL}"
        )
    where = " (engine.buildx of the settings)" if settings.buildx else ""
    answer = run([program, "version"], timeout=ANSWER_SECONDS)
    if not answer.ok:
        raise MachineError(f"{program}{where} does not run: {answer.last()}. {_INSTALL}")
    words = answer.output.split()  # github.com/docker/buildx v0.29.1 COMMIT
    if words[:1] != [_MODULE]:
        raise MachineError(
            f"{program}{where} is not buildx: it answers {answer.last()!r}. {_INSTALL}"
        )
    version = words[1].removeprefix("v") if len(words) > 1 else "unknown"
    return Buildx(
        path=Path(program),
        version=version,
        host=host,
        step_seconds=settings.step_timeout if step_seconds is None else step_seconds,
    )


def with_builder(buildx: Buildx, name: str) -> Buildx:
    """Return the program with another builder, of any driver that loads images into an engine.

    InputError: buildx does not know it, or it is another engine, where its images would stay.
    """
    if name == ENGINES_OWN:
        return buildx
    buildx = replace(buildx, builder=name)
    known = run_buildx(buildx, "inspect")
    if not known.ok:
        raise InputError(
            f"--builder {name} (or engine.builder of the settings): {known.last(1)}. `docker "
            "buildx ls` shows the builders, `docker buildx create` makes one."
        )
    if re.search(r"^Driver: +docker$", known.output, re.MULTILINE):
        raise InputError(
            f"--builder {name}: it is the engine of a Docker context, where its images stay. To "
            "build and test there, set DOCKER_HOST or engine.host."
        )
    return buildx


def is_reachable(buildx: Buildx) -> bool:
    """Return whether a node of the builder runs and can be reached."""
    answer = run_buildx(buildx, "inspect")
    return answer.ok and bool(re.search(r"^Status: +running$", answer.output, re.MULTILINE))


def cache_size(buildx: Buildx) -> str:
    """Return how large the builder's build cache is, as buildx writes it; empty if it has none.

    MachineError: the builder does not answer.
    """
    answer = run_buildx(buildx, "du")
    if not answer.ok:
        raise MachineError(f"The builder {buildx.builder} does not answer: {answer.last(1)}.")
    total = re.search(r"^Total:\s+(\S+)", answer.output, re.MULTILINE)
    return total[1] if total and total[1] != "0B" else ""


def empty_cache(buildx: Buildx) -> None:
    """Remove the builder's whole build cache, except what a build uses; MachineError if not."""
    answer = run_buildx(buildx, "prune", "--all", "--force", seconds=PRUNE_SECONDS)
    if not answer.ok:
        raise MachineError(f"The builder {buildx.builder} keeps its build cache: {answer.last(1)}.")


def run_buildx(
    buildx: Buildx, verb: str, *options: str, seconds: float = ANSWER_SECONDS
) -> Finished:
    """Run a command of buildx about its builder."""
    command = [str(buildx.path), verb, buildx.builder_option, *options]
    return run(command, env=build_environment(buildx.host), timeout=seconds)


def build_environment(host: str | None) -> dict[str, str]:
    """Return the environment of buildx: the user's, less what would change what is built."""
    dropped = {"DOCKER_CONTEXT", "BUILDX_BUILDER", "BUILDX_BAKE_FILE", "SOURCE_DATE_EPOCH"}
    return {
        **{key: value for key, value in os.environ.items() if key not in dropped},
        # Default provenance would give a new image id to every build that changes nothing.
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        # The definition is imgbuild's own: bake need not ask whether it may read its files.
        "BUILDX_BAKE_ENTITLEMENTS_FS": "0",
        # Nobody reads it, and resolving it costs a look-up an image.
        "BUILDX_METADATA_PROVENANCE": "disabled",
        **({} if host is None else {"DOCKER_HOST": host}),
    }
