"""Which address a file is asked from, with which login and which CAs. Asks nothing itself."""

import netrc
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from imgbuild.doctor.ca_bundle import SYSTEM_BUNDLES, VARIABLES
from imgbuild.errors import InputError
from imgbuild.matrix.model import Matrix
from imgbuild.settings import Settings


class Login(NamedTuple):
    """A name and password; nothing prints it."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Login(…)"


@dataclass(frozen=True)
class Sites:
    """The sites of the matrix, what stands in their place here, and how to speak to them."""

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

    def login(self, url: str) -> Login | None:
        """Return the login of the URL's host, if the netrc file names that host."""
        host = urlsplit(url).hostname or ""
        found = self._logins.get(host)
        return Login(found[0] or "", found[2] or "") if found else None

    @cached_property
    def verify(self) -> str | bool:
        """What ``requests`` verifies TLS with: the settings' CA bundle, else the system's."""
        named = [os.environ[name] for name in VARIABLES if os.environ.get(name)]
        system = [str(path) for path in SYSTEM_BUNDLES if path.is_file()]
        return next(
            iter([*([str(self.ca_bundle)] if self.ca_bundle else []), *named, *system]), True
        )

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


def make_sites(matrix: Matrix, settings: Settings) -> Sites:
    """Return the sites of this matrix as this machine reaches them."""
    return Sites(
        {name: site.url for name, site in matrix.upstreams.items() if site.url},
        {name: mirror.url for name, mirror in settings.mirrors.items()},
        Path(settings.netrc) if settings.netrc else None,
        Path(settings.ca_bundle) if settings.ca_bundle else None,
    )


def shown(url: str) -> str:
    """Return a URL as messages show it: without login and without query, which may be a key."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the address"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _folder(url: str) -> str:
    return url.rstrip("/") + "/"
