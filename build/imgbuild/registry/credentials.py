"""The login that ``docker login`` left for a registry: in a credential store, or in config.json.

Nothing that this module returns or raises shows a password.
"""

import warnings
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from imgbuild.errors import CheckFailedError


@dataclass(frozen=True)
class Credentials:
    """A name and password, or a token that stands for both (``identity``)."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The header's value; empty if there is no name."""
        if not self.user:
            return ""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


#: Returns the login of a host as it is now, or ``None``.
FindCredentials = Callable[[str], Credentials | None]


def docker_credentials(host: str) -> Credentials | None:
    """Return the Docker client's login for a host: credHelpers, credsStore, then auths.

    ``DOCKER_CONFIG`` names another folder than ``~/.docker``, as for the client.

    Raises:
        CheckFailedError: the configuration or the credential store cannot be read.

    """
    from docker import auth  # noqa: PLC0415 - slow, and most registries are asked without
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a helper that is not there; the error tells
            config = auth.load_config()
            found = auth.resolve_authconfig(config, host)
    except (DockerException, ValueError, KeyError, TypeError, AttributeError, OSError):
        # Their messages quote what they stumbled over, which may be a password.
        raise CheckFailedError(
            f"{host}: the Docker client's login for it cannot be read: its config.json or its "
            f"credential store (credsStore, credHelpers) fails. Mend it, or: docker login {host}."
        ) from None
    return _credentials(found or {})


def _credentials(found: Mapping[str, str | None]) -> Credentials | None:
    """Return docker-py's entry; its keys begin with capitals where a store gave it."""
    known = {name.lower(): value or "" for name, value in found.items()}
    made = Credentials(
        known.get("username", ""), known.get("password", ""), known.get("identitytoken", "")
    )
    return made if made.user or made.identity else None
