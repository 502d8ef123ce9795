"""Find the engine and buildx: in the settings first, then where the Docker client looks.

imgbuild calls buildx directly, because the first ``docker`` on PATH may be a client without
plugins. Its ``docker build`` silently uses the legacy builder.
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
from imgbuild.engine.types import AMD64

#: The Docker client's default address; a host of ``None`` means the same.
DEFAULT_HOST = "unix:///var/run/docker.sock"
ANSWER_SECONDS = 30
#: Enough seconds to remove 100 GB of build cache from a slow disk.
PRUNE_SECONDS = 1800
#: The plugin folders that the Docker client searches on Linux after the user's own, in its order.
PLUGIN_FOLDERS = (
    "/usr/local/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
)
_PROGRAM = "docker-buildx"
#: The first word that ``buildx version`` prints.
_MODULE = "github.com/docker/buildx"
_INSTALL = (
    "Install it (Debian and Ubuntu: 'apt-get install docker-buildx'; Docker's own packages: "
    "'apt-get install docker-buildx-plugin'), or set its path as engine.buildx in "
    "imgbuild.local.yaml."
)


@dataclass(frozen=True)
class Buildx:
    """The buildx program, and where it builds.

    - ``version``: the version that the program prints, only for reports: features are probed
    - ``host``: address of the engine that receives the images; None: Docker's default socket
    - ``step_seconds``: time limit of a build step; 0: no limit
    - ``builder``: a builder to use instead of the engine's own BuildKit; only the engine's own can
      read the engine's images
    - ``platform``: the platform of the builder's machine, for example ``linux/amd64``
    """

    path: Path
    version: str
    host: str | None = None
    step_seconds: float = 0.0
    builder: str | None = None
    platform: str = AMD64

    @property
    def builder_option(self) -> str:
        return f"--builder={self.builder or ENGINES_OWN}"


def resolve_host(settings: EngineSettings) -> str | None:
    """Return the engine's address, or ``None`` for Docker's default socket.

    The first of these counts: ``engine.host`` in the settings, ``DOCKER_HOST``, ``DOCKER_CONTEXT``,
    the context that ``docker context use`` selected. Except for the settings, this is the Docker
    client's order. docker-py does not support contexts.

    InputError: the address begins with ``ssh://``.
    MachineError: the context does not exist or uses its own TLS files, or the client's
        configuration cannot be read.
    """
    host = settings.host or os.environ.get("DOCKER_HOST") or _host_of_context()
    if host and host.startswith("ssh://"):
        raise InputError(f"DOCKER_HOST or the Docker context: {NO_SSH}.")
    return host


def docker_client(host: str | None) -> tuple[str, ...]:
    """Return the Docker client with the option for an engine; None: the client finds it."""
    return ("docker", "-H", host) if host else ("docker",)


def docker_command(host: str | None) -> str:
    """Return the Docker client's command for messages: ``docker``, or ``docker -H HOST``."""
    return " ".join(docker_client(None if host == DEFAULT_HOST else host))


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
            f"The Docker context {name!r} is selected, but {meta} does not contain the address of "
            "its engine (Endpoints.docker.Host). Select another context, for example with 'docker "
            "context use default', or set engine.host in imgbuild.local.yaml."
        )
    return host


def _config_folder() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or home() / ".docker")


def _read_object(path: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file; an empty one if there is no file or no object in it."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise MachineError(
            f"{path} cannot be read: {what}. Correct it, or set DOCKER_CONFIG to another folder."
        ) from error
    return document if isinstance(document, dict) else {}


def find_buildx(
    settings: EngineSettings, host: str | None, step_seconds: float | None = None
) -> Buildx:
    """Find buildx in the settings, the Docker client's plugin folders or PATH, in this order.

    ``host`` is the engine's address, as `resolve_host` returns it. ``step_seconds`` overrides the
    settings' time limit of a step.

    MachineError: there is no buildx, it does not run, or the program is not buildx.
    """
    own_folders = dict.fromkeys((_config_folder(), home() / ".docker"))
    searched = [*(f"{folder}/cli-plugins" for folder in own_folders), *PLUGIN_FOLDERS]
    path = os.pathsep.join([*searched, os.environ.get("PATH", "")])
    program = settings.buildx or shutil.which(_PROGRAM, path=path)
    if program is None:
        raise MachineError(
            f"{_PROGRAM}, the Docker client's build plugin, is not on this machine (searched: "
            f"{', '.join(searched)}, PATH). {_INSTALL}"
        )
    where = " (engine.buildx in the settings)" if settings.buildx else ""
    answer = run([program, "version"], timeout=ANSWER_SECONDS)
    if not answer.ok:
        raise MachineError(f"{program}{where} does not run: {answer.last()}. {_INSTALL}")
    words = answer.output.split()  # github.com/docker/buildx v0.29.1 COMMIT
    if words[:1] != [_MODULE]:
        raise MachineError(
            f"{program}{where} is not buildx: `version` prints {answer.last()!r}. {_INSTALL}"
        )
    version = words[1].removeprefix("v") if len(words) > 1 else "unknown"
    return Buildx(
        path=Path(program),
        version=version,
        host=host,
        step_seconds=settings.step_timeout if step_seconds is None else step_seconds,
    )


def with_builder(buildx: Buildx, name: str) -> Buildx:
    """Return buildx with another builder, whose driver must load images into an engine.

    InputError: buildx does not know the builder, or it is the engine of a Docker context, where
        the images would stay.
    """
    if name == ENGINES_OWN:
        return buildx
    buildx = replace(buildx, builder=name)
    known = run_buildx(buildx, "inspect")
    if not known.ok:
        raise InputError(
            f"--builder {name} (or engine.builder in the settings): {known.last(1)}. `docker "
            "buildx ls` lists the builders, `docker buildx create` creates one."
        )
    if re.search(r"^Driver: +docker$", known.output, re.MULTILINE):
        raise InputError(
            f"--builder {name}: this builder is the engine of a Docker context, so the images "
            "would stay there. To build and test there, set DOCKER_HOST or engine.host."
        )
    # buildx prints the platform of the machine first, then those that it emulates.
    platforms = re.search(r"^Platforms: +(linux/\w+)", known.output, re.MULTILINE)
    return replace(buildx, platform=platforms[1]) if platforms else buildx


def is_reachable(buildx: Buildx) -> bool:
    """Return whether at least one node of the builder is running and reachable."""
    answer = run_buildx(buildx, "inspect")
    return answer.ok and bool(re.search(r"^Status: +running$", answer.output, re.MULTILINE))


def cache_size(buildx: Buildx) -> str:
    """Return the size of the builder's build cache as buildx prints it; empty if it has none.

    MachineError: the builder does not answer.
    """
    answer = run_buildx(buildx, "du")
    if not answer.ok:
        raise MachineError(f"The builder {buildx.builder} does not answer: {answer.last(1)}.")
    total = re.search(r"^Total:\s+(\S+)", answer.output, re.MULTILINE)
    return total[1] if total and total[1] != "0B" else ""


def empty_cache(buildx: Buildx) -> None:
    """Remove the builder's build cache, except what a running build uses.

    MachineError: the builder did not remove it.
    """
    answer = run_buildx(buildx, "prune", "--all", "--force", seconds=PRUNE_SECONDS)
    if not answer.ok:
        raise MachineError(f"Builder {buildx.builder} kept its build cache: {answer.last(1)}.")


def run_buildx(
    buildx: Buildx, verb: str, *options: str, seconds: float = ANSWER_SECONDS
) -> Finished:
    """Run a buildx command on the builder; ``seconds`` is its time limit."""
    command = [str(buildx.path), verb, buildx.builder_option, *options]
    return run(command, env=build_environment(buildx.host), timeout=seconds)


def build_environment(host: str | None) -> dict[str, str]:
    """Return the user's environment for buildx, without the variables that change builds."""
    dropped = {"DOCKER_CONTEXT", "BUILDX_BUILDER", "BUILDX_BAKE_FILE", "SOURCE_DATE_EPOCH"}
    return {
        **{key: value for key, value in os.environ.items() if key not in dropped},
        # Default provenance gives the image a new id in every build, even if nothing changed.
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        # imgbuild wrote the bake file itself, so bake need not ask for access to the files in it.
        "BUILDX_BAKE_ENTITLEMENTS_FS": "0",
        # imgbuild does not read this metadata, and each image in it costs a look-up.
        "BUILDX_METADATA_PROVENANCE": "disabled",
        **({} if host is None else {"DOCKER_HOST": host}),
    }
