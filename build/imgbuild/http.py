"""The one HTTP client: time limits, redirects, TLS, logins, and trying again."""

import ipaddress
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError
from urllib3.exceptions import IncompleteRead as CutError

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.retry import GaveUpError, RetryPolicy, TransientError, retry_after

T = TypeVar("T")

CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
#: The most bytes of an answer that is read whole, unless more are allowed.
LARGEST_ANSWER = 1 << 24
_CHUNK = 1 << 18
_MOST_REDIRECTS = 10
#: Any method follows these; the older ones only GET and HEAD.
_SAME_METHOD, _OLDER = {307, 308}, {301, 302, 303}
# A file is what the server has, not what it packs for the way.
_ALWAYS = {"User-Agent": "imgbuild", "Accept-Encoding": "identity"}
_PORTS = {"http": 80, "https": 443}
_UNTRUSTED = (
    "its TLS certificate is not trusted here; if your network re-signs TLS, set ca_bundle in the "
    "settings"
)
#: The first that fits: some are kinds of others.
_REASONS = (
    (requests.exceptions.ProxyError, "the proxy of this machine cannot be reached"),
    (requests.exceptions.SSLError, "TLS failed, or the server has none"),
    (requests.exceptions.ConnectTimeout, "no connection in time"),
    (requests.exceptions.ReadTimeout, "no answer in time"),
)


@dataclass(frozen=True)
class Answer:
    """An answer with its whole body, and the address that gave it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class HttpClient:
    """Sends requests; threads may share it, and its connections are kept alive.

    ``verify`` is what ``requests`` verifies TLS with. ``login`` returns the ``Authorization``
    header for an address, or nothing. ``log`` gets a line for each further try.
    """

    def __init__(
        self,
        verify: str | bool = True,
        *,
        policy: RetryPolicy | None = None,
        login: Callable[[str], str] = lambda _: "",
        log: Callable[[str], None] = lambda _: None,
        seconds: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS),
    ) -> None:
        self.policy = policy or RetryPolicy()
        self._verify = verify
        self._login = login
        self._log = log
        self._seconds = seconds
        #: Sessions not in use: a session does not promise that threads may share it.
        self._idle: list[requests.Session] = []
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def close(self) -> None:
        """Close idle connections; a thread that waits for another try gives up."""
        self._closed.set()
        while self._idle:
            self._idle.pop().close()

    def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, limit: int = LARGEST_ANSWER
    ) -> Answer:
        """Return the answer to a GET, tried again after faults that may pass.

        The caller judges the status; 429 and the server's own faults are no answer.

        Raises:
            GaveUpError: the last try failed.
            MachineError: another try would not help: TLS, a wrong redirect, more than ``limit``.

        """

        def attempt() -> Answer:
            answer = self.ask("GET", url, headers, limit=limit, decode=True)
            raise_transient(answer.status, answer.headers)
            return answer

        return self.retry(f"GET {shown(url)}", attempt)

    def retry(self, what: str, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, begun anew after each `TransientError`.

        Raises:
            GaveUpError: the last try failed, or the client was closed.

        """
        failed = 0
        while True:
            try:
                return work()
            except TransientError as error:
                failed += 1
                seconds = self.policy.wait(failed, error.wait)
                if seconds == inf or self.closed:
                    raise GaveUpError(what, error, failed) from None
                count = f"{failed} of {self.policy.attempts} tries"
                self._log(f"{what}: {error}. Again in {seconds:.1f} s ({count}).")
                if self._closed.wait(seconds):
                    raise GaveUpError(what, error, failed) from None

    def ask(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        content: bytes | Path | None = None,
        authorization: str = "",
        secret: bool = False,
        limit: int = LARGEST_ANSWER,
        decode: bool = False,
    ) -> Answer:
        """Return the answer to one try of a request, its body read whole; any status is an answer.

        ``authorization`` goes to the site of ``url`` alone, a ``secret`` content too. ``decode``
        unpacks a body that the server packed for the way.

        Raises:
            TransientError: there was no connection, or no whole answer.
            MachineError: another try would not help: TLS, a wrong redirect, more than ``limit``.
            CheckFailedError: a secret would be sent over plain http.

        """
        with self.stream(
            method, url, headers, content=content, authorization=authorization, secret=secret
        ) as response:
            body = bytearray()
            for chunk in response.raw.stream(_CHUNK, decode_content=decode):
                body += chunk
                if len(body) > limit:
                    raise MachineError(f"{shown(url)} sent more than {limit >> 20} MiB: refused.")
            return Answer(response.status_code, response.headers, bytes(body), response.url)

    @contextmanager
    def stream(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        content: bytes | Path | None = None,
        authorization: str = "",
        secret: bool = False,
    ) -> Iterator[requests.Response]:
        """Give the answer to one try of a request, its body unread; see `ask`."""
        require_safe(url, secret=bool(authorization) or secret)
        session = self._session()
        login = authorization or self._login(url)
        given = {**_ALWAYS, **({"Authorization": login} if login else {}), **(headers or {})}
        try:
            with closing(self._follow(session, method, url, given, content, secret)) as response:
                yield response
        except (requests.RequestException, HTTPError) as error:
            session.close()
            # Not chained: the original holds the request, with what it was authorized by.
            raise _fault(error, url) from None
        except BaseException:
            session.close()
            raise
        self._idle.append(session)

    def _follow(  # noqa: PLR0913, PLR0917 - the parts of a request
        self,
        session: requests.Session,
        method: str,
        url: str,
        headers: dict[str, str],
        content: bytes | Path | None,
        secret: bool,
    ) -> requests.Response:
        """Return the answer after all redirects; only the first site gets what authorizes."""
        here, sent = url, headers
        for _ in range(_MOST_REDIRECTS):
            response = self._send(session, method, here, sent, content)
            there = _redirected(method, here, response)
            if there is None or (secret and not same_site(url, there)):
                return response
            response.close()
            here = there
            if not same_site(url, here):
                sent = {key: value for key, value in sent.items() if key != "Authorization"}
        raise MachineError(f"{shown(url)}: too many redirects.")

    def _session(self) -> requests.Session:
        try:
            return self._idle.pop()
        except IndexError:
            session = requests.Session()
            # Neither logins (~/.netrc) nor CAs of the environment: only what is given here.
            session.trust_env = False
            return session

    def _send(
        self,
        session: requests.Session,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | Path | None,
    ) -> requests.Response:
        with ExitStack() as stack:
            data = stack.enter_context(content.open("rb")) if isinstance(content, Path) else content
            return session.request(
                method,
                url,
                data=data,
                headers=dict(headers),
                timeout=self._seconds,
                allow_redirects=False,
                stream=True,
                verify=self._verify,
                proxies={} if is_loopback(urlsplit(url).netloc) else get_environ_proxies(url),
            )


def raise_transient(status: int, headers: Mapping[str, str], detail: str = "") -> None:
    """Raise `TransientError` for a status that another try may change; ``detail`` explains it."""
    if status in {408, 425, 429} or status >= 500:
        raise TransientError(f"it answered {status}{detail}", retry_after(headers))


def shown(url: str) -> str:
    """Return an address for messages: without login, and without query, which may be a key."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the address"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def same_site(one: str, other: str) -> bool:
    """Return whether two addresses are of one scheme, host and port."""
    return _site(one) == _site(other)


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without port, is this machine, without resolving its name."""
    name = host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def require_safe(url: str, *, secret: bool) -> None:
    """Refuse to send a secret where anybody on the way can read it.

    Raises:
        CheckFailedError: it would be.

    """
    parts = urlsplit(url)
    if secret and parts.scheme != "https" and not is_loopback(parts.netloc):
        raise CheckFailedError(
            f"{shown(url)} is plain http: the login is not sent there. Give the server a TLS "
            "certificate."
        )


def moved(here: str, location: str) -> str:
    """Return the address that a ``Location`` names; it may be relative. https stays https.

    Raises:
        MachineError: it leads from https to something else.

    """
    parts = urlsplit(urljoin(here, location))
    there = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if parts.scheme not in _PORTS or (here.startswith("https:") and parts.scheme != "https"):
        raise MachineError(
            f"{shown(here)} leads from https to {shown(there)}. A proxy before the server has to "
            "tell it X-Forwarded-Proto: https, or the server has to give relative addresses."
        )
    return there


def reason_of(error: Exception) -> str:
    """Return why there was no whole answer, without addresses of proxies or memory in it."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return _UNTRUSTED
    if isinstance(error, CutError) or "IncompleteRead" in str(error):
        return "its answer broke off"
    for kind, text in _REASONS:
        if isinstance(error, kind):
            return text
    if isinstance(error, requests.exceptions.ConnectionError):
        return f"no connection{_cause(error)}"
    return str(error) or type(error).__name__


def _fault(error: Exception, url: str) -> Exception:
    reason = reason_of(error)
    return (
        MachineError(f"{shown(url)}: {reason}.") if reason is _UNTRUSTED else TransientError(reason)
    )


def _cause(error: BaseException | None) -> str:
    """Return the system's message: ``: Connection refused``, ``: Name or service not known``."""
    while error is not None:
        # requests' own errors are OSErrors too, without a number.
        if isinstance(error, OSError) and error.errno and error.strerror:
            return f": {error.strerror}"
        nested = [getattr(error, "reason", None), *error.args, error.__cause__, error.__context__]
        error = next((inner for inner in nested if isinstance(inner, BaseException)), None)
    return ""


def _redirected(method: str, url: str, response: requests.Response) -> str | None:
    """Return the next address, if the answer is a redirect that may be followed."""
    location = response.headers.get("Location")
    followed = _SAME_METHOD | _OLDER if method in {"GET", "HEAD"} else _SAME_METHOD
    return moved(url, location) if location and response.status_code in followed else None


def _site(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
