"""Authorize requests to a registry by the Docker client's login, or by a token for it.

Sources: RFC 9110, section 11.6.1 (challenges); the token authentication specification of the
distribution project. Nothing that this module returns or raises shows a password.
"""

import json
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from imgbuild.errors import CheckFailedError
from imgbuild.http import Answer, HttpClient, raise_transient
from imgbuild.registry.repository import RepositoryName
from imgbuild.settings import Credentials

#: This client's name for the token server, which wants one with identity tokens.
_CLIENT = "imgbuild"
_TOKEN = re.compile(r"[!-~]+")
#: A name alone is a scheme; with "=" and a value, it is a parameter of the scheme before it.
_WORD = re.compile(
    r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]+)))?"
)

#: Returns the login of a host as it is now, or ``None``.
FindCredentials = Callable[[str], Credentials | None]


class LoginError(CheckFailedError):
    """There is no login, or the registry refuses it."""


class Authorization:
    """The ``Authorization`` header for one repository. Threads share it, and request one token."""

    def __init__(
        self, name: RepositoryName, http: HttpClient, find_credentials: FindCredentials
    ) -> None:
        self._name = name
        self._http = http
        self._find = find_credentials
        self._lock = threading.Lock()
        #: Empty before the registry has asked for one.
        self._header = ""
        self._writes = False

    def authorized(self, send: Callable[[str], Answer], *, write: bool) -> Answer:
        """Return the answer to a request, which is sent again with a new header after a 401.

        Raises:
            LoginError: there is no login, or it is wrong.

        """
        header = self._known(write=write)
        answer = send(header)
        if answer.status == 401:
            challenge = answer.headers.get("WWW-Authenticate", "")
            answer = send(self._renewed(challenge, header, write=write))
        if answer.status == 401:
            raise self._error(self._find(self._name.host))
        return answer

    def _known(self, *, write: bool) -> str:
        return self._header if self._writes or not write else ""

    def _renewed(self, challenge: str, refused: str, *, write: bool) -> str:
        """Return another header than the one that was ``refused`` with this challenge."""
        with self._lock:
            known = self._known(write=write)
            if known and known != refused:
                return known  # another thread has renewed it
            login = self._find(self._name.host)
            header = self._new(read_challenges(challenge), login, write=write)
            if header in {"", refused}:
                raise self._error(login)
            # A login is used for both.
            self._header, self._writes = header, write or header.startswith("Basic ")
            return header

    def _new(
        self, challenges: Mapping[str, Mapping[str, str]], login: Credentials | None, *, write: bool
    ) -> str:
        """Return a new header, or nothing if there is none."""
        bearer = challenges.get("bearer", {})
        if not bearer.get("realm"):
            return login.basic if login and "basic" in challenges else ""
        answer = self._ask_for_token(bearer, login, write=write)
        raise_transient(answer.status, answer.headers)
        try:
            document = json.loads(answer.body)
            token = str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return ""
        return f"Bearer {token}" if answer.status == 200 and _TOKEN.fullmatch(token) else ""

    def _ask_for_token(
        self, challenge: Mapping[str, str], login: Credentials | None, *, write: bool
    ) -> Answer:
        """Return the token server's answer; an identity token is exchanged as in OAuth 2."""
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
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            form = urlencode(query).encode()
            return self._http.ask("POST", realm, kind, content=form, secret=True)
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        return self._http.ask("GET", url, authorization=login.basic if login else "")

    def _error(self, login: Credentials | None) -> LoginError:
        problem = "requires a login; this machine has none"
        if login:
            problem = (
                "refuses the login of this machine: it is wrong or has expired, or it may not do "
                "this"
            )
        return LoginError(f"{self._name}: the registry {problem}: docker login {self._name.host}.")


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
