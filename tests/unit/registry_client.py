"""The real client of registries for tests: it waits for nothing, and gives up soon."""

from collections.abc import Callable

from imgbuild.http import HttpClient, RetryPolicy
from imgbuild.registry.connection import FindCredentials
from imgbuild.registry.repository import parse_repository
from imgbuild.registry.repository_client import RegistryClient
from imgbuild.sites import Credentials

LOGIN = Credentials("user", "pass-word-1")
ATTEMPTS = 3


def opened(
    name: str,
    find: FindCredentials = lambda _host: None,
    say: Callable[[str], None] = lambda _text: None,
    policy: RetryPolicy = RetryPolicy(ATTEMPTS, 0.0),  # noqa: B008 - frozen
) -> RegistryClient:
    """Return a client of a repository."""
    http = HttpClient(policy=policy, log=say, seconds=(2.0, 2.0))
    return RegistryClient(parse_repository(name, "test"), http, find)
