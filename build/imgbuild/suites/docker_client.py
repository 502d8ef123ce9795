"""The docker client that the suites run their commands through."""

import shutil

from imgbuild.errors import MachineError


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
