"""Find the engine: from the settings, else as the Docker client does."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

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
    context = environ.get("DOCKER_CONTEXT") or _current_context(folder / "config.json")
    return None if context in {"", "default"} else _context_host(folder / "contexts", context)


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the Docker client's configuration."""
    return Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _current_context(config: Path) -> str:
    """Return the name of the context in use, empty if none was chosen."""
    found = _read_object(config) if config.is_file() else {}
    return str(found.get("currentContext") or "")


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
    return _docker_host(_read_object(meta), meta)


def _docker_host(meta: Mapping[str, object], path: Path) -> str:
    endpoints = meta.get("Endpoints")
    endpoint = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = endpoint.get("Host") if isinstance(endpoint, dict) else None
    if not isinstance(host, str) or not host:
        raise MachineError(
            f"{path} names no engine address (Endpoints.docker.Host). Create the context again "
            "with 'docker context create', or set engine.host in imgbuild.local.yaml."
        )
    return host


def _read_object(path: Path) -> Mapping[str, object]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MachineError(f"{path} cannot be read: {error}. Correct or remove it.") from error
    return found if isinstance(found, dict) else {}
