"""The docker client that the suites run their commands through."""

import os
import shutil
import subprocess
from collections.abc import Sequence

from imgbuild.errors import MachineError
from imgbuild.process import dies_with_parent


def require_docker_client() -> None:
    """Raise unless testinfra will find a docker client: asked before anything is built.

    Raises:
        MachineError: there is none on PATH.

    """
    if shutil.which("docker") is None:
        raise MachineError(
            "No docker client on PATH; the suites run their commands through it. Install one "
            "(Debian: apt-get install docker-cli; Ubuntu: docker.io), or build with --no-test."
        )


def run_docker(
    words: Sequence[str], host: str | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Return what the docker client said of a command, for the engine at ``host``.

    Raises:
        subprocess.TimeoutExpired: it took longer than so many seconds.

    """
    return subprocess.run(
        dies_with_parent(["docker", *words]),
        env={**os.environ, **({"DOCKER_HOST": host} if host else {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )
