"""The real client of registries for tests: it waits for nothing, and gives up soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgbuild.registry.asking import Asking
from imgbuild.registry.credentials import Credentials
from imgbuild.registry.exchange import Exchange
from imgbuild.registry.http import HttpRegistry
from imgbuild.registry.patience import Patience
from imgbuild.registry.repository import parse_repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from imgbuild.registry.credentials import FindCredentials

LOGIN = Credentials("user", "pass-word-1")
ATTEMPTS = 3


def opened(
    name: str,
    find: FindCredentials = lambda _host: None,
    say: Callable[[str], None] = lambda _text: None,
    patience: Patience = Patience(ATTEMPTS, 0.0),  # noqa: B008 - frozen
) -> HttpRegistry:
    """Return a client of a repository."""
    exchange = Exchange(verify=True, seconds=(2.0, 2.0))
    return HttpRegistry(Asking(parse_repository(name, "test"), exchange, patience, find, say))
