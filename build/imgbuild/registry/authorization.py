"""What a registry is authorized by: a login (Basic), or a token for it (Bearer).

Source: the token authentication specification of the distribution project.
"""

import json
import re
import threading
from urllib.parse import urlencode

from imgbuild.errors import CheckFailedError
from imgbuild.registry.challenge import Challenge, challenge_of
from imgbuild.registry.credentials import Credentials, FindCredentials
from imgbuild.registry.exchange import Exchange, Question
from imgbuild.registry.faults import login_needed, passing
from imgbuild.registry.repository import RepositoryName

#: The token server's name of this client; it asks for one with tokens of identity.
_CLIENT = "imgbuild"
_TOKEN = re.compile(r"[!-~]+")


class Authorization:
    """What is sent with questions to one repository. Threads share it, and ask for one token."""

    def __init__(
        self, name: RepositoryName, exchange: Exchange, find_credentials: FindCredentials
    ) -> None:
        self._name = name
        self._exchange = exchange
        self._find = find_credentials
        self._lock = threading.Lock()
        #: Headers by whether they allow to write; a login allows what it allows.
        self._known: dict[bool, str] = {}

    def header(self, *, write: bool) -> str:
        """Return what is known to be wanted; empty before a registry has said so."""
        return self._known.get(True) or ("" if write else self._known.get(False, ""))

    def renew(self, challenge: str, refused: str, *, write: bool) -> str:
        """Return another header than the one that was ``refused`` with this challenge.

        Raises:
            CheckFailedError: there is no login, or it is wrong.
            PassingError: the token server does not answer as it should.

        """
        with self._lock:
            self._forget(refused)
            known = self.header(write=write)
            if known:
                return known  # another thread was here before
            header = self._new(challenge, write=write)
            if header == refused:
                raise login_needed(self._name, has_one=True)
            # A login is good for both; a token for what it was asked for.
            self._known[write or header.startswith("Basic ")] = header
            return header

    def _forget(self, refused: str) -> None:
        """Drop what was refused; a token to write also with any to read, which is the older one."""
        if refused == self._known.get(True):
            self._known = {}
        else:
            self._known = {key: one for key, one in self._known.items() if one != refused}

    def reject(self) -> CheckFailedError:
        """Return the error of a registry that refuses what it was just given."""
        return login_needed(self._name, has_one=self._credentials() is not None)

    def _new(self, header: str, *, write: bool) -> str:
        bearer = challenge_of(header, "bearer")
        if bearer and bearer.parameters.get("realm"):
            return f"Bearer {self._token(bearer, write=write)}"
        login = self._credentials()
        if login is None or not login.basic or not challenge_of(header, "basic"):
            raise login_needed(self._name, has_one=login is not None)
        return login.basic

    def _credentials(self) -> Credentials | None:
        return self._find(self._name.host)

    def _token(self, challenge: Challenge, *, write: bool) -> str:
        login = self._credentials()
        answer = self._exchange.ask(self._request(challenge, login, write=write))
        fault = passing(answer)
        if fault:
            raise fault
        try:
            document = json.loads(answer.body)
            token = str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise login_needed(self._name, has_one=login is not None) from None
        if not _TOKEN.fullmatch(token):  # requests would quote it in its error
            raise login_needed(self._name, has_one=login is not None)
        return token

    def _request(self, challenge: Challenge, login: Credentials | None, *, write: bool) -> Question:
        """Return the question for a token; one of identity is exchanged, as OAuth 2 has it."""
        realm = challenge.parameters["realm"]
        asked = {
            "service": challenge.parameters.get("service", ""),
            "scope": f"repository:{self._name.path}:{'pull,push' if write else 'pull'}",
        }
        if login and login.identity:
            body = {
                **asked,
                "grant_type": "refresh_token",
                "client_id": _CLIENT,
                "refresh_token": login.identity,
            }
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            # The body is as secret as a header: sent under the same condition.
            return Question("POST", realm, form, urlencode(body).encode(), secret=True)
        joint = "&" if "?" in realm else "?"
        url = f"{realm}{joint}{urlencode(asked)}"
        return Question("GET", url, authorization=login.basic if login else "")
