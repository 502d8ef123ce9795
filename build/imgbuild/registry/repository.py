"""The name of a repository: ``HOST[:PORT]/REPOSITORY``, and how its registry is reached."""

import ipaddress
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from imgbuild.errors import InputError
from imgbuild.scalars import PublishingRepository

#: Docker Hub is called otherwise than its registry. Source: the engine's registry package.
HUB, HUB_REGISTRY = "docker.io", "registry-1.docker.io"


@dataclass(frozen=True)
class RepositoryName:
    """A repository; ``host`` is with its port, if it has one."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def registry(self) -> str:
        """The host, with its port, that is asked."""
        return HUB_REGISTRY if self.host == HUB else self.host

    @property
    def local(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(self.host)


def parse_repository(text: str, option: str) -> RepositoryName:
    """Return the repository that ``text`` names; ``option`` is who named it, for the error.

    Raises:
        InputError: it names none.

    """
    if "@" in text:  # never quoted: a login may be in it
        raise InputError(
            f"{option}: a repository is HOST[:PORT]/REPOSITORY, without login and digest. Logins "
            "are the Docker client's: docker login HOST."
        )
    try:
        TypeAdapter(PublishingRepository).validate_python(text)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{option}: {reason}.") from None
    host, _, path = text.partition("/")
    return RepositoryName(host, path)


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without port, is this machine whoever resolves its name."""
    name = host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
