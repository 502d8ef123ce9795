"""The sites of the upstreams, as this machine reaches them: mirrors, logins, authorities."""

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

#: Variables that OpenSSL, requests, curl and pip read; the first that is set counts.
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
#: The default bundles of distributions.
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
)
#: How often a download is tried, and the longest pause before the second try, in seconds.
_TRIES, _FIRST_WAIT = 3, 1.0
_NETRC = "It holds lines such as `machine mirror.example.org login NAME password SECRET`."


@dataclass(frozen=True)
class Credentials:
    """A name and password, or a token that stands for both (``identity``); nothing prints it."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The header's value; empty if there is no name."""
        if not self.user:
            return ""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


@dataclass(frozen=True)
class Sites:
    """The matrix's upstreams by name, what replaces them here, and how to speak to them."""

    upstreams: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)

    def address(self, url: str) -> str:
        """Return the URL to ask: that of a mirror if ``url`` belongs to a mirrored upstream."""
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
        """Return the login of the URL's host, if the netrc file names that host.

        Its ``default`` entry is not used: it would be sent to anyone. InputError: the netrc file
        cannot be read.
        """
        entry = self._logins.get(urlsplit(url).hostname or "")
        if entry is None:
            return None
        user, _, password = entry
        return Credentials(user or "", password or "")

    def check_logins(self) -> None:
        """Raise InputError if apt or uv would send a login of the netrc file over plain http."""
        addresses = [self.address(url) for url in self.upstreams.values()]
        addresses += [mirror.url for mirror in self.settings.mirrors.values()]
        for url in addresses:
            if self.login(url) and is_unencrypted(url):
                raise InputError(
                    f"The settings: netrc {self.settings.netrc} has a login for {url}, which is "
                    "plain http, where all can read it. Name the site by https, or remove its "
                    "login from the file."
                )

    @property
    def verify(self) -> str | bool:
        """The CA bundle that TLS is verified with: the settings', the environment's, the system's.

        InputError: the one that was named does not exist.
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
        """Return a new client that trusts the CAs and sends the logins of these sites.

        InputError: the CA bundle does not exist, or the netrc file cannot be read.
        """
        from imgbuild.net.http import HttpClient, RetryPolicy  # noqa: PLC0415 - brings requests

        def login(url: str) -> str:
            return (self.login(url) or Credentials()).basic

        return HttpClient(self.verify, policy=RetryPolicy(_TRIES, _FIRST_WAIT), login=login)

    def get(self, url: str, *, limit: int = 1 << 24) -> "Answer":
        """Return the answer of ``url`` or of its mirror, read whole; ``limit`` is in bytes.

        MachineError: there is no answer, or only a server error, or more than ``limit``.
        """
        address = self.address(url)
        try:
            return self._client.get(address, limit=limit)
        except MachineError as error:
            raise MachineError(f"{error} {self.advice(address)}") from None

    def advice(self, address: str) -> str:
        """Return what to do about a site that does not give what it should."""
        if any(address.startswith(mirror.url) for mirror in self.settings.mirrors.values()):
            return "That is a mirror of the settings or --mirror: check that it holds the file."
        return "Where this site cannot be reached, name a mirror of it (docs/mirrors.md)."

    @cached_property
    def _client(self) -> "HttpClient":
        return self.client()

    @cached_property
    def _logins(self) -> Mapping[str, tuple[str, str | None, str | None]]:
        path = self.settings.netrc
        if path is None:
            return {}
        try:
            read_user_file(Path(path), f"The settings: netrc {path}", _NETRC)  # it may have no end
            return netrc.netrc(path).hosts
        except (netrc.NetrcParseError, UnicodeDecodeError, OSError) as error:
            # The parser's message quotes the token that it stumbled over: it may be a password.
            line = f":{error.lineno}" if isinstance(error, netrc.NetrcParseError) else ""
            fault = error.strerror if isinstance(error, OSError) else "not a netrc file"
            raise InputError(f"The settings: netrc {path}{line}: {fault}. {_NETRC}") from None


def _add_slash(url: str) -> str:
    return url.rstrip("/") + "/"
