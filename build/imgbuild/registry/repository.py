"""The name of a repository: ``HOST[:PORT]/REPOSITORY``, and how its registry is reached."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from imgbuild.errors import InputError
from imgbuild.http import is_loopback
from imgbuild.scalars import PublishingRepository

if TYPE_CHECKING:
    from imgbuild.settings import Settings

#: Docker Hub's registry has another host than its images' names. Source: the engine's registry
#: package.
HUB, HUB_REGISTRY = "docker.io", "registry-1.docker.io"


@dataclass(frozen=True)
class RepositoryName:
    """A repository; ``host`` includes its port, if it has one."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def registry(self) -> str:
        """The host, with its port, that requests go to."""
        return HUB_REGISTRY if self.host == HUB else self.host

    @property
    def local(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(self.host)


def parse_repository(text: str, option: str) -> RepositoryName:
    """Return the repository that ``text`` names; ``option`` is where it was named, for the error.

    Raises:
        InputError: it is not the name of a repository.

    """
    if "@" in text:  # never quoted: it may hold a login
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


def select_repository(
    option_value: str | None, settings: "Settings", option: str
) -> tuple[str, str]:
    """Return the repository of an option, else of the settings, and where it was named.

    Raises:
        InputError: neither names one, or the option's is no repository.

    """
    if option_value is not None:
        parse_repository(option_value, option)
        return option_value, option
    if settings.publishing.repository:
        return settings.publishing.repository, "publishing.repository"
    raise InputError(
        f"Which registry? Give {option} HOST[:PORT]/REPOSITORY, or set publishing: "
        "{repository: …} in imgbuild.local.yaml."
    )
