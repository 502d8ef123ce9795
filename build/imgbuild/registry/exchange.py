"""One question to a registry, and its whole answer. Redirects followed; who asks judges it."""

from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError, IncompleteRead

from imgbuild.downloads.faults import reason_of
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.registry.file_content import FileContent
from imgbuild.registry.patience import PassingError
from imgbuild.registry.protocol import LARGEST_ANSWER
from imgbuild.registry.repository import is_loopback

CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
_CHUNK = 1 << 18
_MOST_REDIRECTS = 5
#: Any method follows these; the older ones only what is safe to ask anywhere.
_SAME_METHOD, _OLDER = {307, 308}, {301, 302, 303}
_ALWAYS = {"User-Agent": "imgbuild", "Accept-Encoding": "identity"}
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Question:
    """One request. ``authorization`` is for the site of ``url`` alone, a ``secret`` content too.

    ``most`` is how much of an answer is read, in bytes.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | FileContent | None = field(default=None, repr=False)
    authorization: str = field(default="", repr=False)
    secret: bool = False
    most: int = LARGEST_ANSWER


@dataclass(frozen=True)
class Answer:
    """An answer with its whole body, and the address that gave it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class Exchange:
    """Asks questions; threads may share it, and its connections are kept alive."""

    def __init__(
        self, verify: str | bool, seconds: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS)
    ) -> None:
        """Remember what ``requests`` verifies TLS with, and how long it waits to connect, read."""
        self._verify = verify
        self._seconds = seconds
        #: Nobody says that threads may share a session at the same moment.
        self._idle: list[requests.Session] = []

    def ask(self, question: Question) -> Answer:
        """Return the answer.

        Raises:
            PassingError: there was no connection, or no whole answer.
            MachineError: what another try would not change: TLS, redirects astray, too much.

        """
        try:
            return self._follow(question)
        except (requests.RequestException, HTTPError) as error:
            # Not chained: the original holds the request, with what it was authorized by.
            raise _fault(error, question.url) from None
        except OSError as error:
            raise MachineError(f"{shown(question.url)} cannot be asked: {error}.") from None

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def _follow(self, question: Question) -> Answer:
        here = question
        for _ in range(_MOST_REDIRECTS):
            answer = self._send(here)
            there = _redirected(here, answer)
            if there is None:
                return answer
            here = there
        raise MachineError(f"{shown(question.url)}: it redirects without end.")

    def _send(self, question: Question) -> Answer:
        require_safe(question)
        session = self._session()
        try:
            answer = self._sent(session, question)
        except BaseException:
            session.close()
            raise
        self._idle.append(session)
        return answer

    def _sent(self, session: requests.Session, question: Question) -> Answer:
        own = {"Authorization": question.authorization} if question.authorization else {}
        local = is_loopback(urlsplit(question.url).netloc)
        content = question.content
        sent = content.opened() if isinstance(content, FileContent) else nullcontext(content)
        with sent as data:
            response = session.request(
                question.method,
                question.url,
                data=data,
                headers={**_ALWAYS, **question.headers, **own},
                timeout=self._seconds,
                allow_redirects=False,
                stream=True,
                verify=self._verify,
                proxies={} if local else get_environ_proxies(question.url),
            )
        with closing(response):
            body = _body(response, question)
        return Answer(response.status_code, response.headers, body, question.url)

    def _session(self) -> requests.Session:
        try:
            return self._idle.pop()
        except IndexError:
            session = requests.Session()
            # Neither logins (~/.netrc) nor CAs of the environment: only what is given here.
            session.trust_env = False
            return session


def shown(url: str) -> str:
    """Return an address for messages: without login, and without query, which may be a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def same_site(one: str, other: str) -> bool:
    """Return whether two addresses are of one scheme, host and port."""
    return _site(one) == _site(other)


def require_safe(question: Question) -> None:
    """Refuse to send a login where anybody on the way can read it.

    Raises:
        CheckFailedError: it would be.

    """
    parts = urlsplit(question.url)
    if (
        (question.authorization or question.secret)
        and parts.scheme != "https"
        and not is_loopback(parts.netloc)
    ):
        raise CheckFailedError(
            f"{shown(question.url)} is plain http: the login is not sent there. Give the registry "
            "a TLS certificate."
        )


def _redirected(question: Question, answer: Answer) -> Question | None:
    """Return the next question, if the answer is a redirect that may be followed."""
    location = answer.headers.get("Location")
    safe = question.method in {"GET", "HEAD"}
    if not location or answer.status not in (_SAME_METHOD | _OLDER if safe else _SAME_METHOD):
        return None
    url = moved(question.url, location)
    own = same_site(url, question.url)
    if question.secret and not own:
        return None
    return replace(question, url=url, authorization=question.authorization if own else "")


def moved(here: str, location: str) -> str:
    """Return the address that a ``Location`` names; it may be relative. https stays https.

    Raises:
        MachineError: it leads from https to something else.

    """
    parts = urlsplit(urljoin(here, location))
    there = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if parts.scheme not in _PORTS or (here.startswith("https:") and parts.scheme != "https"):
        raise MachineError(
            f"{shown(here)} leads from https to {shown(there)}. A proxy before the registry has to "
            "tell it X-Forwarded-Proto: https, or the registry has to give relative addresses."
        )
    return there


def _body(response: requests.Response, question: Question) -> bytes:
    body = bytearray()
    for chunk in response.raw.stream(_CHUNK, decode_content=False):
        body += chunk
        if len(body) > question.most:
            raise MachineError(f"{shown(question.url)} sent more than {question.most >> 20} MiB.")
    return bytes(body)


def _site(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def _fault(error: Exception, url: str) -> Exception:
    """Return what to raise for an error of requests or urllib3."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        untrusted = requests.exceptions.SSLError()
        return MachineError(f"{shown(url)}: {reason_of(untrusted)}.")
    if isinstance(error, requests.exceptions.SSLError):
        return PassingError("its TLS broke off, or it speaks none")
    if isinstance(error, IncompleteRead) or "IncompleteRead" in str(error):
        return PassingError("its answer broke off")
    return PassingError(reason_of(error))
