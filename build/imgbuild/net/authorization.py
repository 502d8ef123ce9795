"""Find out whether a registry uses http or https, and authorize requests by login or token.

Sources: RFC 9110, section 11.6.1 (challenges); the token authentication specification of the
distribution project. No error message of this module shows a password.
"""

import re
import threading
import warnings
from collections.abc import Callable, Mapping
from urllib.parse import urlencode
from urllib.request import parse_http_list

from imgbuild.core.errors import CheckFailedError, ImgbuildError
from imgbuild.core.files import parse_json
from imgbuild.net import addresses, http
from imgbuild.net.repository import RepositoryName
from imgbuild.net.sites import Credentials

#: The client's name, which token servers require with an identity token.
_CLIENT = "imgbuild"
_DELETE_SCOPE = "pull,push,delete"
_TOKEN = re.compile(r"[!-~]+")

#: A function that returns the current login of a host, or None.
FindCredentials = Callable[[str], Credentials | None]


class Authorization:
    """The scheme of a registry, and the authorization for one repository. Threads share one token.

    Logins are looked up when the registry asks for one. ``login_error`` creates the error for a
    missing or wrong login. Only registries on this machine may use http.
    """

    def __init__(
        self,
        name: RepositoryName,
        client: http.HttpClient,
        find_credentials: FindCredentials,
        login_error: Callable[[str], ImgbuildError],
    ) -> None:
        self._repository = name
        self._http = client
        self._find = find_credentials
        self._make_login_error = login_error
        self._lock = threading.Lock()
        self._scheme = "" if addresses.is_loopback(name.host) else "https"
        #: The ``Authorization`` header; empty until the registry asks for one.
        self._header = ""
        self._writes = False
        #: The scope to request for writing; a server may grant less.
        self._write_scope = "pull,push"

    def allow_deletion(self) -> None:
        """Request permission for deletions with the next token for writing."""
        if self._write_scope != _DELETE_SCOPE:
            self._write_scope, self._writes = _DELETE_SCOPE, False

    def root(self) -> str:
        """Return the address of the registry."""
        with self._lock:
            if not self._scheme:
                self._scheme = self._find_scheme()
            return f"{self._scheme}://{self._repository.registry}"

    def _find_scheme(self) -> str:
        """Return the scheme of a registry on this machine; like engines, try https first."""
        host = self._repository.registry
        try:
            self._http.ask("GET", f"https://{host}/v2/")
        except http.TransientError as error:
            if "Connection refused" in str(error):
                raise
            # The request is valid HTTP, so 400 means that the server expects TLS.
            if self._http.ask("GET", f"http://{host}/v2/").status == 400:
                raise
            return "http"
        return "https"

    def send(self, send: Callable[..., http.Answer], *, write: bool) -> http.Answer:
        """Return the answer to a request; after a 401, send it once more with a new header."""
        header = self._cached_token(write=write)
        answer = send(authorization=header)
        if self._requires_login(answer):
            challenge = answer.headers.get("WWW-Authenticate", "")
            answer = send(authorization=self._refresh_token(challenge, header, write=write))
            if self._requires_login(answer):
                raise self._login_error(self._find(self._repository.host))
        return answer

    def _requires_login(self, answer: http.Answer) -> bool:
        """Return whether the registry asks for a login.

        CheckFailedError: a site to which the registry redirects asks for one.
        """
        if answer.status == 401 and not addresses.same_site(answer.url, self.root()):
            raise CheckFailedError(
                f"{self._repository}: the registry redirects to {addresses.redact(answer.url)}, "
                "which asks for a login. imgbuild sent none to that site. Check the registry, or "
                "the proxy in front of it."
            )
        return answer.status == 401

    def _cached_token(self, *, write: bool) -> str:
        return self._header if self._writes or not write else ""

    def _refresh_token(self, challenge: str, refused: str, *, write: bool) -> str:
        """Return a new header in place of the one that was ``refused`` with this challenge."""
        with self._lock:
            known = self._cached_token(write=write)
            if known and known != refused:
                return known  # another thread has already renewed it
            login = self._find(self._repository.host)
            header = self._request_token(read_challenges(challenge), login, write=write)
            if header in {"", refused}:
                raise self._login_error(login)
            # A Basic login is for both reading and writing.
            self._header, self._writes = header, write or header.startswith("Basic ")
            return header

    def _request_token(
        self, challenges: Mapping[str, Mapping[str, str]], login: Credentials | None, *, write: bool
    ) -> str:
        """Return a new header; empty if there is no login or no valid token."""
        bearer = challenges.get("bearer", {})
        if not bearer.get("realm"):
            return login.basic if login and "basic" in challenges else ""
        root = f"{self._scheme}://{self._repository.registry}"
        bearer = {**bearer, "realm": addresses.resolve_redirect(root, bearer["realm"])}
        answer = self._ask_for_token(bearer, login, write=write)
        http.raise_transient(answer.status, answer.headers)
        try:
            document = parse_json(answer.body)
            token = str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return ""
        return f"Bearer {token}" if answer.status == 200 and _TOKEN.fullmatch(token) else ""

    def _ask_for_token(
        self, challenge: Mapping[str, str], login: Credentials | None, *, write: bool
    ) -> http.Answer:
        """Return the token server's answer; exchange an identity token as in OAuth 2."""
        realm = challenge["realm"]
        query = {
            "service": challenge.get("service", ""),
            "scope": f"repository:{self._repository.path}:{self._write_scope if write else 'pull'}",
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

    def _login_error(self, login: Credentials | None) -> ImgbuildError:
        problem = (
            "refused this machine's login, which is wrong, has expired, or lacks the permission"
            if login
            else "requires a login, and this machine has none"
        )
        host = self._repository.host
        return self._make_login_error(
            f"{self._repository}: the registry {problem}. Run `docker login {host}`."
        )


def read_challenges(header: str) -> dict[str, dict[str, str]]:
    """Return each scheme's parameters in a ``WWW-Authenticate`` header, with lower-case names."""
    challenges: dict[str, dict[str, str]] = {}
    parameters: dict[str, str] = {}
    for item in parse_http_list(header):
        names, is_set, value = item.partition("=")
        *scheme, name = names.lower().split() or [""]
        if not is_set:
            scheme = [name]
        if scheme:
            parameters = challenges.setdefault(scheme[0], {})
        if is_set:
            parameters[name] = value.strip().removeprefix('"').removesuffix('"')
    return challenges


def docker_credentials(host: str) -> Credentials | None:
    """Return the Docker client's login for a host, from credHelpers, credsStore, then auths.

    As for the client, ``DOCKER_CONFIG`` can name another folder than ``~/.docker``.

    CheckFailedError: the configuration or the credential store cannot be read.
    """
    from docker import auth  # noqa: PLC0415 - slow, and most registries need no login
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a missing helper, which also raises an error
            entry = auth.resolve_authconfig(auth.load_config(), host) or {}
    except (DockerException, ValueError, KeyError, TypeError, AttributeError, OSError):
        # These errors quote the text that could not be read, which may be a password.
        raise CheckFailedError(
            f"{host}: the Docker client's login cannot be read, because its config.json is "
            "damaged or its credential store (credsStore, credHelpers) fails. To fix it, run "
            f"`docker login {host}`."
        ) from None
    # Credential stores write the keys of an entry with a capital first letter.
    values = {name.lower(): value or "" for name, value in entry.items()}
    credentials = Credentials(
        user=values.get("username", ""),
        password=values.get("password", ""),
        identity=values.get("identitytoken", ""),
    )
    return credentials if credentials.user or credentials.identity else None
