"""A registry, opened as this machine's settings say."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.downloads.sites import Sites
from imgbuild.errors import InputError
from imgbuild.registry.asking import Asking
from imgbuild.registry.credentials import docker_credentials
from imgbuild.registry.exchange import Exchange
from imgbuild.registry.http import HttpRegistry
from imgbuild.registry.patience import Patience
from imgbuild.registry.repository import parse_repository

if TYPE_CHECKING:
    from imgbuild.registry.protocol import Registry
    from imgbuild.settings import Settings


def open_registry(
    repository: str,
    settings: "Settings",
    say: Callable[[str], None],
    *,
    option: str = "publishing.repository",
) -> "Registry":
    """Return the repository ``HOST[:PORT]/REPOSITORY``; nothing is asked yet.

    Logins are the Docker client's. http is spoken on this machine only. TLS is verified with the
    settings' CA bundle, else the system's. ``say`` is told of every try that is made again, and
    ``option`` is who named the repository, for the error.

    Raises:
        InputError: it is no repository.

    """
    name = parse_repository(repository, option)
    sites = Sites(ca_bundle=Path(settings.ca_bundle) if settings.ca_bundle else None)
    patience = Patience(settings.publishing.attempts, settings.publishing.first_wait)
    exchange = Exchange(sites.verify)
    return HttpRegistry(Asking(name, exchange, patience, docker_credentials, say))


def chosen_repository(given: str | None, settings: "Settings", option: str) -> tuple[str, str]:
    """Return the repository to use, and who named it: the option, else the settings.

    Raises:
        InputError: neither names one.

    """
    if given is not None:
        return given, option
    if settings.publishing.repository:
        return settings.publishing.repository, "publishing.repository"
    raise InputError(
        f"Which registry? Give {option} HOST[:PORT]/REPOSITORY, or set publishing: "
        "{repository: …} in imgbuild.local.yaml."
    )
