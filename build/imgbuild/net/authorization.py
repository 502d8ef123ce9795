"""Find the scheme and the login of a registry: http or https, a login or a token.

Sources: RFC 9110, section 11.6.1 (challenges); the token authentication specification of the
distribution project. Nothing that this module returns or raises shows a password.
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

#: The name of this client, which token servers require with identity tokens.
_CLIENT = "imgbuild"
_DELETE_SCOPE = "pull,push,delete"
_TOKEN = re.compile(r"[!-~]+")

#: Returns the login of a host as it is now, or ``None``.
FindCredentials = Callable[[str], Credentials | None]


class Authorization:
    """The scheme of a registry, and the login for one repository. Threads share one token.

    Logins are found when the registry asks for one; ``login_error`` makes the error of one that is
    missing or wrong. http is spoken on this machine only.
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
        #: The ``Authorization`` header; empty before the registry has asked for one.
        self._header = ""
        self._writes = False
        #: The scope of tokens for writing; a server may grant less.
        self._write_scope = "pull,push"

    def allow_deletion(self) -> None:
        """Let the next token for writing allow deletions."""
        if self._write_scope != _DELETE_SCOPE:
            self._write_scope, self._writes = _DELETE_SCOPE, False

    def root(self) -> str:
        """Return the address of the registry."""
        with self._lock:
            if not self._scheme:
                self._scheme = self._find_scheme()
            return f"{self._scheme}://{self._repository.registry}"

    def _find_scheme(self) -> str:
        """Return the scheme of a registry on this machine: https is tried first, as engines do."""
        host = self._repository.registry
        try:
            self._http.ask("GET", f"https://{host}/v2/")
        except http.TransientError as error:
            if "Connection refused" in str(error):
                raise
            # 400 is what servers answer that want TLS; this request is right in HTTP.
            if self._http.ask("GET", f"http://{host}/v2/").status == 400:
                raise
            return "http"
        return "https"

    def send(self, send: Callable[..., http.Answer], *, write: bool) -> http.Answer:
        """Return the answer to a request, which is sent again with a new header after a 401."""
        header = self._cached_token(write=write)
        answer = send(authorization=header)
        if self._requires_login(answer):
            challenge = answer.headers.get("WWW-Authenticate", "")
            answer = send(authorization=self._refresh_token(challenge, header, write=write))
            if self._requires_login(answer):
                raise self._login_error(self._find(self._repository.host))
        return answer

    def _requires_login(self, answer: http.Answer) -> bool:
        """Return whether the registry itself asks for a login; no site that it leads to may."""
        if answer.status == 401 and not addresses.same_site(answer.url, self.root()):
            raise CheckFailedError(
                f"{self._repository}: the registry leads to {addresses.redact(answer.url)}, which "
                "asks for a login; none was sent there. Check the registry, or a proxy before it."
            )
        return answer.status == 401

    def _cached_token(self, *, write: bool) -> str:
        return self._header if self._writes or not write else ""

    def _refresh_token(self, challenge: str, refused: str, *, write: bool) -> str:
        """Return another header than the one that was ``refused`` with this challenge."""
        with self._lock:
            known = self._cached_token(write=write)
            if known and known != refused:
                return known  # another thread has renewed it
            login = self._find(self._repository.host)
            header = self._request_token(read_challenges(challenge), login, write=write)
            if header in {"", refused}:
                raise self._login_error(login)
            # A login is used for both.
            self._header, self._writes = header, write or header.startswith("Basic ")
            return header

    def _request_token(
        self, challenges: Mapping[str, Mapping[str, str]], login: Credentials | None, *, write: bool
    ) -> str:
        """Return a new header, or nothing if there is none."""
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
        """Return the token server's answer; an identity token is exchanged as in OAuth 2."""
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
            "refuses the login of this machine: it is wrong, has expired, or lacks the permission"
            if login
            else "requires a login; this machine has none"
        )
        host = self._repository.host
        return self._make_login_error(
            f"{self._repository}: the registry {problem}: docker login {host}."
        )


def read_challenges(header: str) -> dict[str, dict[str, str]]:
    """Return the parameters of each scheme of a ``WWW-Authenticate`` header, in lower case."""
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
    """Return the Docker client's login for a host: credHelpers, credsStore, then auths.

    ``DOCKER_CONFIG`` names another folder than ``~/.docker``, as for the client. It is a
    CheckFailedError if the configuration or the credential store cannot be read.
    """
    from docker import auth  # noqa: PLC0415 - slow, and most registries want no login
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a helper that is not there; the error says so
            entry = auth.resolve_authconfig(auth.load_config(), host) or {}
    except (DockerException, ValueError, KeyError, TypeError, AttributeError, OSError):
        # Their messages quote what they could not read, which may be a password.
        raise CheckFailedError(
            f"{host}: the Docker client's login cannot be read: its config.json or its "
            f"credential store (credsStore, credHelpers) fails. Correct it: docker login {host}."
        ) from None
    # The keys of a store's entry begin with capitals.
    values = {name.lower(): value or "" for name, value in entry.items()}
    credentials = Credentials(
        user=values.get("username", ""),
        password=values.get("password", ""),
        identity=values.get("identitytoken", ""),
    )
    return credentials if credentials.user or credentials.identity else None
