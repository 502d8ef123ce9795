"""How this machine reaches the upstreams: mirrors, logins and CA bundles."""

import netrc
import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import read_user_file
from imgbuild.core.settings import Settings
from imgbuild.net.addresses import is_unencrypted

if TYPE_CHECKING:  # requests takes 0.1 s to import, and a plan needs no network
    from imgbuild.net.http import Answer, HttpClient

#: Variables that OpenSSL, requests, curl and pip read. The first one that is set counts.
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
#: The default CA bundles of Linux distributions.
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
)
#: The number of tries of a download, and the longest wait before the second one, in seconds.
_TRIES, _FIRST_WAIT = 3, 1.0
_NETRC = "Write lines like this: `machine mirror.example.org login NAME password SECRET`."


@dataclass(frozen=True)
class Credentials:
    """A name and a password, or an ``identity`` token in place of both; ``repr`` shows neither."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of the ``Authorization`` header; empty if there is no name."""
        if not self.user:
            return ""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


@dataclass(frozen=True)
class Sites:
    """The matrix's upstreams by name, and the settings for mirrors, logins and CA bundles."""

    upstreams: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)

    def address(self, url: str) -> str:
        """Return the address to use for ``url``: a mirror's if the settings mirror its upstream.

        If several upstreams fit, the one with the longest address counts.
        """
        mirrored: dict[str, str] = {}
        for name, upstream in self.upstreams.items():
            folder, mirror = _add_slash(upstream), self.settings.mirrors.get(name)
            if mirror and _add_slash(url).startswith(folder):
                mirrored[folder] = _add_slash(mirror.url)
        if not mirrored:
            return url
        longest = max(mirrored, key=len)
        return mirrored[longest] + url[len(longest) :]

    def login(self, url: str) -> Credentials | None:
        """Return the login for the URL's host if the netrc file names that host.

        The ``default`` entry is ignored, because it would be sent to every host.

        InputError: the netrc file cannot be read.
        """
        entry = self._logins.get(urlsplit(url).hostname or "")
        if entry is None:
            return None
        user, _, password = entry
        return Credentials(user or "", password or "")

    def check_logins(self) -> None:
        """Raise InputError if apt or uv would send a login from the netrc file over plain http."""
        addresses = [self.address(url) for url in self.upstreams.values()]
        addresses += [mirror.url for mirror in self.settings.mirrors.values()]
        for url in addresses:
            if self.login(url) and is_unencrypted(url):
                raise InputError(
                    f"The settings: netrc {self.settings.netrc} has a login for {url}, but plain "
                    "http would send it unencrypted. Use an https address for the site, or remove "
                    "its login from the file."
                )

    @property
    def verify(self) -> str | bool:
        """The CA bundle for TLS: from the settings, the environment or the system, in this order.

        True stands for the bundle of ``requests``, if the system has none.

        InputError: the bundle that the settings or the environment name does not exist.
        """
        named = {"The settings: ca_bundle": self.settings.ca_bundle}
        named |= {name: os.environ.get(name) for name in CA_VARIABLES}
        for source, path in named.items():
            if not path:
                continue
            if not Path(path).exists():
                raise InputError(
                    f"{source} names {path}, which does not exist. Correct or remove it."
                )
            return path
        return next((str(bundle) for bundle in SYSTEM_BUNDLES if bundle.is_file()), True)

    def client(self) -> "HttpClient":
        """Return a new client that uses the CA bundle and the logins of these sites.

        InputError: the CA bundle does not exist, or the netrc file cannot be read.
        """
        from imgbuild.net.http import HttpClient, RetryPolicy  # noqa: PLC0415 - brings requests

        def login(url: str) -> str:
            return (self.login(url) or Credentials()).basic

        return HttpClient(self.verify, policy=RetryPolicy(_TRIES, _FIRST_WAIT), login=login)

    def get(self, url: str, *, limit: int = 1 << 24) -> "Answer":
        """Return the whole answer of ``url`` or of its mirror; ``limit`` is in bytes.

        MachineError: there is no answer, only a server error, or an answer larger than ``limit``.
        """
        address = self.address(url)
        try:
            return self._client.get(address, limit=limit)
        except MachineError as error:
            raise MachineError(f"{error} {self.advice(address)}") from None

    def advice(self, address: str) -> str:
        """Return advice for a site that cannot be reached or does not have a file."""
        if any(address.startswith(mirror.url) for mirror in self.settings.mirrors.values()):
            return "This is a mirror from the settings or --mirror. Check that it has the file."
        return "If this machine cannot reach the site, use a mirror of it (docs/mirrors.md)."

    @cached_property
    def _client(self) -> "HttpClient":
        return self.client()

    @cached_property
    def _logins(self) -> Mapping[str, tuple[str, str | None, str | None]]:
        path = self.settings.netrc
        if path is None:
            return {}
        try:
            # The parser would read a file that never ends.
            read_user_file(Path(path), f"The settings: netrc {path}", _NETRC)
            return netrc.netrc(path).hosts
        except (netrc.NetrcParseError, UnicodeDecodeError, OSError) as error:
            # The parser's message quotes a token that it did not expect, which may be a password.
            line = f":{error.lineno}" if isinstance(error, netrc.NetrcParseError) else ""
            fault = error.strerror if isinstance(error, OSError) else "not a netrc file"
            raise InputError(f"The settings: netrc {path}{line}: {fault}. {_NETRC}") from None


def _add_slash(url: str) -> str:
    return url.rstrip("/") + "/"
