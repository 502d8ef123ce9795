"""Authorize requests to a registry by the Docker client's login, or by a token for it.

Sources: RFC 9110, section 11.6.1 (challenges); the token authentication specification of the
distribution project. Nothing that this module returns or raises shows a password.
"""

import json
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from imgbuild.errors import CheckFailedError
from imgbuild.registry.repository import RepositoryName
from imgbuild.sites import Credentials

#: This client's name for the token server, which wants one with identity tokens.
_CLIENT = "imgbuild"
_TOKEN = re.compile(r"[!-~]+")
#: A name alone is a scheme; with "=" and a value, it is a parameter of the scheme before it.
_WORD = re.compile(
    r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]+)))?"
)


#: Returns the login of a host as it is now, or ``None``.
FindCredentials = Callable[[str], Credentials | None]


@dataclass(frozen=True)
class TokenRequest:
    """A request for a token: GET with a header, or POST of a form that is as secret as one."""

    url: str
    authorization: str = field(default="", repr=False)
    form: bytes | None = field(default=None, repr=False)


#: Sends the request and returns status and body of the answer, redirects followed.
SendTokenRequest = Callable[[TokenRequest], tuple[int, bytes]]


class LoginError(CheckFailedError):
    """There is no login, or the registry refuses it."""


class Authorization:
    """The ``Authorization`` header for one repository. Threads share it, and request one token."""

    def __init__(
        self, name: RepositoryName, send: SendTokenRequest, find_credentials: FindCredentials
    ) -> None:
        self._name = name
        self._send = send
        self._find = find_credentials
        self._lock = threading.Lock()
        #: Headers by whether they allow to write; a login is used for both.
        self._known: dict[bool, str] = {}

    def header(self, *, write: bool) -> str:
        """Return the header's value; empty before the registry has asked for one."""
        return self._known.get(True) or ("" if write else self._known.get(False, ""))

    def renew(self, challenge: str, refused: str, *, write: bool) -> str:
        """Return another header than the one that was ``refused`` with this challenge.

        Raises:
            CheckFailedError: there is no login, or it is wrong.

        """
        with self._lock:
            self._forget(refused)
            known = self.header(write=write)
            if known:
                return known  # another thread has renewed it
            header = self._new(challenge, write=write)
            if header == refused:
                raise login_error(self._name, has_one=True)
            self._known[write or header.startswith("Basic ")] = header
            return header

    def error(self) -> LoginError:
        """Return the error of a registry that refuses a header that was just renewed."""
        return login_error(self._name, has_one=self._find(self._name.host) is not None)

    def _forget(self, refused: str) -> None:
        """Drop a header; with a token to write also the one to read, which is older."""
        if refused == self._known.get(True):
            self._known = {}
        else:
            self._known = {key: one for key, one in self._known.items() if one != refused}

    def _new(self, header: str, *, write: bool) -> str:
        challenges = read_challenges(header)
        login = self._find(self._name.host)
        bearer = challenges.get("bearer", {})
        if bearer.get("realm"):
            return f"Bearer {self._token(bearer, login, write=write)}"
        if login is None or not login.basic or "basic" not in challenges:
            raise login_error(self._name, has_one=login is not None)
        return login.basic

    def _token(
        self, challenge: Mapping[str, str], login: Credentials | None, *, write: bool
    ) -> str:
        status, body = self._send(self._request(challenge, login, write=write))
        try:
            document = json.loads(body)
            token = str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, TypeError, AttributeError):
            token = ""
        if status != 200 or not _TOKEN.fullmatch(token):
            raise login_error(self._name, has_one=login is not None)
        return token

    def _request(
        self, challenge: Mapping[str, str], login: Credentials | None, *, write: bool
    ) -> TokenRequest:
        """Return the request for a token; an identity token is exchanged as in OAuth 2."""
        realm = challenge["realm"]
        query = {
            "service": challenge.get("service", ""),
            "scope": f"repository:{self._name.path}:{'pull,push' if write else 'pull'}",
        }
        if login and login.identity:
            query |= {
                "grant_type": "refresh_token",
                "client_id": _CLIENT,
                "refresh_token": login.identity,
            }
            return TokenRequest(realm, form=urlencode(query).encode())
        joint = "&" if "?" in realm else "?"
        return TokenRequest(f"{realm}{joint}{urlencode(query)}", login.basic if login else "")


def read_challenges(header: str) -> dict[str, dict[str, str]]:
    """Return the parameters of each scheme of a ``WWW-Authenticate`` header, in lower case."""
    found: dict[str, dict[str, str]] = {}
    last: dict[str, str] = {}
    for word in _WORD.finditer(header):
        name, quoted, plain = word.groups()
        if quoted is None and plain is None:
            last = found.setdefault(name.lower(), {})
        else:
            last[name.lower()] = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return found


def login_error(name: RepositoryName, *, has_one: bool) -> LoginError:
    """Return the error of a login that is missing, or that the registry does not accept."""
    if has_one:
        return LoginError(
            f"{name}: the registry refuses the login of this machine: it is wrong or has expired, "
            f"or it may not do this: docker login {name.host}."
        )
    return LoginError(
        f"{name}: the registry requires a login; this machine has none: docker login {name.host}."
    )


def docker_credentials(host: str) -> Credentials | None:
    """Return the Docker client's login for a host: credHelpers, credsStore, then auths.

    ``DOCKER_CONFIG`` names another folder than ``~/.docker``, as for the client.

    Raises:
        CheckFailedError: the configuration or the credential store cannot be read.

    """
    from docker import auth  # noqa: PLC0415 - slow, and most registries want no login
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a helper that is not there; the error says so
            found = auth.resolve_authconfig(auth.load_config(), host) or {}
    except (DockerException, ValueError, KeyError, TypeError, AttributeError, OSError):
        # Their messages quote what they could not read, which may be a password.
        raise CheckFailedError(
            f"{host}: the Docker client's login cannot be read: its config.json or its "
            f"credential store (credsStore, credHelpers) fails. Correct it: docker login {host}."
        ) from None
    # The keys of a store's entry begin with capitals.
    known = {name.lower(): value or "" for name, value in found.items()}
    made = Credentials(
        known.get("username", ""), known.get("password", ""), known.get("identitytoken", "")
    )
    return made if made.user or made.identity else None
