"""Find the engine: from the settings, else as the Docker client does."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imgbuild.errors import MachineError
from imgbuild.settings import EngineSettings

#: Where the Docker client looks when nothing says otherwise; ``None`` stands for it.
DEFAULT_HOST = "unix:///var/run/docker.sock"


def resolve_host(settings: EngineSettings, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the engine's address, or ``None`` for Docker's default socket.

    The order is the Docker client's, behind the settings: ``engine.host``, ``DOCKER_HOST``,
    ``DOCKER_CONTEXT``, the context that ``docker context use`` chose.
    docker-py itself knows no contexts.

    Raises:
        MachineError: the context does not exist, or needs TLS files that only the client finds.

    """
    if settings.host:
        return settings.host
    if environ.get("DOCKER_HOST"):
        return environ["DOCKER_HOST"]
    folder = config_folder(environ)
    config = folder / "config.json"
    context = environ.get("DOCKER_CONTEXT")
    if not context and config.is_file():
        context = _read_object(config).get("currentContext")
    if not context or context == "default":
        return None
    return _context_host(folder / "contexts", str(context))


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the Docker client's configuration."""
    return Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _context_host(contexts: Path, name: str) -> str:
    """Return a context's address. Its folder is named by the sha256 of its name."""
    folder = hashlib.sha256(name.encode()).hexdigest()
    meta = contexts / "meta" / folder / "meta.json"
    if not meta.is_file():
        raise MachineError(
            f"The Docker context {name!r} is selected but does not exist ({meta} is missing). "
            "Choose another with 'docker context use default', or set engine.host in "
            "imgbuild.local.yaml."
        )
    if (contexts / "tls" / folder).is_dir():
        raise MachineError(
            f"The Docker context {name!r} uses its own TLS files, which imgbuild does not read. "
            "Set DOCKER_HOST, DOCKER_CERT_PATH and DOCKER_TLS_VERIFY=1 instead."
        )
    try:
        if host := _read_object(meta)["Endpoints"]["docker"]["Host"]:
            return str(host)
    except (KeyError, TypeError):
        pass
    raise MachineError(
        f"{meta} names no engine address (Endpoints.docker.Host). Create the context again "
        "with 'docker context create', or set engine.host in imgbuild.local.yaml."
    )


def _read_object(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MachineError(f"{path} cannot be read: {error}. Correct or remove it.") from error
    return found if isinstance(found, dict) else {}
