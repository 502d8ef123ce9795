"""The sites that files come from: mirrors, logins and CAs of this machine."""

import netrc
import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from imgbuild.errors import InputError, MachineError
from imgbuild.settings import Settings

if TYPE_CHECKING:  # requests takes 0.1 s to import, and a plan needs no network
    from imgbuild.http import Answer, HttpClient

#: What OpenSSL, requests, curl and pip read, in the order in which one is believed.
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
#: Where distributions keep the bundle that programs use by default.
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
)
_TRIES = 3


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
    """The matrix's upstreams, what replaces them here, and how to speak to them."""

    upstreams: Mapping[str, str] = field(default_factory=dict)
    """The matrix's URLs, by name."""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    """URLs that replace them, by the same names."""
    netrc: Path | None = None
    """Logins, by host; its ``default`` entry is not used: it would be sent to anyone."""
    ca_bundle: Path | None = None

    def address(self, url: str) -> str:
        """Return the URL to ask: that of a mirror if ``url`` belongs to a mirrored upstream."""
        inside = {
            upstream: self.mirrors[name]
            for name, upstream in self.upstreams.items()
            if name in self.mirrors and _folder(url).startswith(_folder(upstream))
        }
        if not inside:
            return url
        longest = max(inside, key=len)
        return _folder(inside[longest]) + url[len(_folder(longest)) :]

    def login(self, url: str) -> Credentials | None:
        """Return the login of the URL's host, if the netrc file names that host.

        Raises:
            InputError: the netrc file cannot be read.

        """
        found = self._logins.get(urlsplit(url).hostname or "")
        return Credentials(found[0] or "", found[2] or "") if found else None

    @property
    def verify(self) -> str | bool:
        """What TLS is verified with: the settings' CA bundle, the environment's, the system's.

        Raises:
            InputError: the one that was named does not exist.

        """
        named = {"imgbuild.local.yaml: ca_bundle": self.ca_bundle}
        named |= {name: Path(os.environ[name]) for name in CA_VARIABLES if os.environ.get(name)}
        for source, path in named.items():
            if path and not path.exists():
                raise InputError(
                    f"{source} names {path}, which does not exist. Correct or remove it."
                )
            if path:
                return str(path)
        return next((str(path) for path in SYSTEM_BUNDLES if path.is_file()), True)

    def client(self) -> "HttpClient":
        """Return a new client that trusts the CAs and sends the logins of these sites.

        Raises:
            InputError: the CA bundle does not exist, or the netrc file cannot be read.

        """
        from imgbuild.http import HttpClient, RetryPolicy  # noqa: PLC0415 - brings requests

        def login(url: str) -> str:
            found = self.login(url)
            return found.basic if found else ""

        return HttpClient(self.verify, policy=RetryPolicy(_TRIES), login=login)

    def get(self, url: str, *, limit: int = 1 << 24) -> "Answer":
        """Return the answer of ``url`` or of its mirror, read whole; ``limit`` is in bytes.

        Raises:
            MachineError: there is no answer, or only a server error, or more than ``limit``.

        """
        address = self.address(url)
        try:
            return self._client.get(address, limit=limit)
        except MachineError as error:
            raise MachineError(f"{error} {self.advice(address)}") from None

    def advice(self, address: str) -> str:
        """Return what to do about a site that does not give what it should."""
        if any(address.startswith(url) for url in self.mirrors.values()):
            return "That is a mirror of imgbuild.local.yaml: check that it holds the file."
        return "Where this site cannot be reached, name a mirror of it (docs/guide.md)."

    @cached_property
    def _client(self) -> "HttpClient":
        return self.client()

    @cached_property
    def _logins(self) -> Mapping[str, tuple[str, str | None, str | None]]:
        if self.netrc is None:
            return {}
        try:
            return netrc.netrc(str(self.netrc)).hosts
        except netrc.NetrcParseError as error:
            # Its message quotes the token that it stumbled over, which may be a password.
            raise InputError(
                f"{self.netrc}:{error.lineno}: not a netrc file. It holds lines such as "
                "`machine mirror.example.org login NAME password SECRET`."
            ) from None
        except UnicodeDecodeError:
            raise InputError(f"{self.netrc}: not a netrc file: it is no UTF-8 text.") from None
        except OSError as error:
            raise InputError(
                f"imgbuild.local.yaml: netrc {self.netrc}: {error.strerror}. Correct the path, or "
                "take the line out."
            ) from error


def make_sites(upstreams: Mapping[str, str], settings: Settings) -> Sites:
    """Return the sites as reached from here; ``upstreams`` are the matrix's URLs by name."""
    return Sites(
        upstreams,
        {name: mirror.url for name, mirror in settings.mirrors.items()},
        Path(settings.netrc) if settings.netrc else None,
        Path(settings.ca_bundle) if settings.ca_bundle else None,
    )


def _folder(url: str) -> str:
    return url.rstrip("/") + "/"
