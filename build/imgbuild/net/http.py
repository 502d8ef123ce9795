"""The one HTTP client: time limits, redirects, TLS, logins, and trying again."""

import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from math import inf
from typing import TypeVar
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError
from urllib3.util import Retry

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.parallel import background
from imgbuild.net.addresses import (
    PORTS,
    is_loopback,
    is_unencrypted,
    redact,
    resolve_redirect,
    same_site,
)

T = TypeVar("T")

#: The most bytes of an answer that is read whole, unless more are allowed.
LARGEST_ANSWER = 1 << 24
#: The most seconds between two tries, and the most that a server may request.
LONGEST_WAIT, LONGEST_REQUESTED = 60.0, 300.0
#: The most seconds until the headers of an answer are there, and all of one that is read whole: a
#: server that sends a byte a second keeps every shorter limit.
HEADERS_SECONDS, ANSWER_SECONDS = 120.0, 300.0
_CHUNK = 1 << 18
#: The first that fits: some are kinds of others.
_REASONS = (
    (requests.exceptions.ProxyError, "the proxy of this machine cannot be reached"),
    (requests.exceptions.SSLError, "TLS failed, or the server has none"),
    (requests.exceptions.ConnectTimeout, "no connection in time"),
    ((requests.exceptions.ReadTimeout, ReadTimeoutError), "no answer in time"),
    ((requests.exceptions.ChunkedEncodingError, ProtocolError), "its answer broke off"),
)
#: The system's message in the text of an error: ``Connection refused``.
_CAUSE = re.compile(r"(?:\[Errno -?\d+\] |Error\(\d+, ['\"])([^'\")]+)")


class TransientError(Exception):
    """A fault that may pass by itself; the message completes "HOST: ".

    ``wait`` is the number of seconds that the server requests.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with full jitter: many clients must not come back at the same moment.

    ``first_wait`` is the most seconds before the second try. Source: M. Brooker, "Exponential
    Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    attempts: int
    first_wait: float

    def wait(self, failed: int, requested: float | None = None) -> float:
        """Return the seconds to wait after so many failed tries; infinite after the last one."""
        if failed >= self.attempts or (requested or 0.0) > LONGEST_REQUESTED:
            return inf
        most = min(LONGEST_WAIT, self.first_wait * 2.0 ** (failed - 1))
        return max(random.uniform(0.0, most), requested or 0.0)  # noqa: S311 - no secret


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
    header for an address, or nothing. ``log`` gets a line for each further try. ``seconds`` limit
    the connection, and each wait for the server.
    """

    def __init__(
        self,
        verify: str | bool = True,
        *,
        policy: RetryPolicy,
        login: Callable[[str], str] = lambda _: "",
        log: Callable[[str], None] = lambda _: None,
        seconds: tuple[float, float] = (10.0, 60.0),
    ) -> None:
        self.policy = policy
        self._login = login
        self._log = log
        self._seconds = seconds
        self._session = _Session(verify)
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Close idle connections; a thread that waits for another try gives up."""
        self._closed.set()
        self._session.close()

    def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, limit: int = LARGEST_ANSWER
    ) -> Answer:
        """Return the answer to a GET, tried again after faults that may pass.

        The caller judges the status; 429 and the server's own faults are no answer. The errors are
        those of `retry` and `ask`.
        """

        def attempt() -> Answer:
            answer = self.ask("GET", url, headers, limit=limit)
            raise_transient(answer.status, answer.headers)
            return answer

        return self.retry(f"GET {redact(url)}", attempt)

    def retry(
        self,
        what: str,
        work: Callable[[], T],
        advice: Callable[[TransientError], str] = lambda _: "",
    ) -> T:
        """Return what ``work`` returns, begun anew after each `TransientError`.

        MachineError: the last try failed, or the client was closed. ``advice`` ends its message.
        """
        failed = 0
        while True:
            try:
                return work()
            except TransientError as error:
                failed += 1
                seconds = self.policy.wait(failed, error.wait)
                if seconds < inf and not self.closed:
                    count = f"{failed} of {self.policy.attempts} tries"
                    self._log(f"{what}: {error}. Again in {seconds:.1f} s ({count}).")
                if seconds == inf or self._closed.wait(seconds):
                    tries = "1 try" if failed == 1 else f"{failed} tries"
                    text = f"{what} failed: {error} ({tries}). {advice(error)}"
                    raise MachineError(text.rstrip()) from None

    def ask(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        content: bytes | None = None,
        authorization: str = "",
        secret: bool = False,
        limit: int = LARGEST_ANSWER,
    ) -> Answer:
        """Return the answer to one try of a request, its body read whole; any status is an answer.

        ``authorization`` goes to the site of ``url`` alone; a ``secret`` content is not redirected.

        TransientError: there was no connection, or no whole answer.
        MachineError: another try would not help: TLS, a wrong redirect, more than ``limit``.
        CheckFailedError: a secret would be sent over plain http.
        """
        with self.stream(
            method, url, headers, content=content, authorization=authorization, secret=secret
        ) as response:
            body = bytearray()
            with limit_time(ANSWER_SECONDS, response):
                for piece in response.raw.stream(_CHUNK, decode_content=True):
                    body += piece
                    if len(body) > limit:
                        size = f"{limit >> 20} MiB"
                        raise MachineError(f"{redact(url)} sent more than {size}: refused.")
            return Answer(response.status_code, response.headers, bytes(body), response.url)

    @contextmanager
    def stream(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        content: bytes | None = None,
        authorization: str = "",
        secret: bool = False,
    ) -> Iterator[requests.Response]:
        """Give the answer to one try of a request, its body unread; see `ask`."""
        login = authorization or self._login(url)
        if (login or secret) and is_unencrypted(url):
            raise CheckFailedError(
                f"{redact(url)} is plain http: the login is not sent there. Give the server a TLS "
                "certificate, or this machine no login for it."
            )
        sent = {**({"Authorization": login} if login else {}), **(headers or {})}
        try:
            request = partial(
                self._session.request,
                method,
                url,
                data=content,
                headers=sent,
                timeout=self._seconds,
                allow_redirects=not secret,
                stream=True,
                proxies=_proxies(url),
            )
            with closing(background(request).result(HEADERS_SECONDS)) as response:
                yield response
        except TimeoutError:
            raise TransientError(f"no headers within {HEADERS_SECONDS:.0f} s") from None
        except (requests.RequestException, HTTPError) as error:
            # Not chained: the original holds the request, with what it was authorized by.
            raise _translate_error(error, url) from None


class _Session(requests.Session):
    """Follows redirects as `resolve_redirect` allows, and sends logins only to the first site."""

    def __init__(self, verify: str | bool) -> None:
        super().__init__()
        self.verify = verify
        # Files must arrive as the server has them, not compressed on the way.
        self.headers.update({"User-Agent": "imgbuild", "Accept-Encoding": "identity"})
        # Ignore logins (~/.netrc) and CAs of the environment.
        self.trust_env = False
        self.max_redirects = 10
        # Keep no cookies, because they are not safe beside threads.
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        for scheme in PORTS:
            self.mount(f"{scheme}://", HTTPAdapter(pool_maxsize=32))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        location = super().get_redirect_target(resp)
        # A 301 to 303 would turn a write into a GET.
        follows = resp.request.method in {"GET", "HEAD"} or resp.status_code in {307, 308}
        return resolve_redirect(resp.url, location) if location and follows else None

    def rebuild_auth(
        self, prepared_request: requests.PreparedRequest, response: requests.Response
    ) -> None:
        if not same_site(str(response.request.url), str(prepared_request.url)):
            prepared_request.headers.pop("Authorization", None)

    def rebuild_proxies(
        self, prepared_request: requests.PreparedRequest, _: object
    ) -> dict[str, str]:
        return _proxies(str(prepared_request.url))


def _proxies(url: str) -> dict[str, str]:
    return {} if is_loopback(urlsplit(url).netloc) else dict(get_environ_proxies(url))


@contextmanager
def limit_time(seconds: float, response: requests.Response) -> Iterator[Callable[[], None]]:
    """Cut the answer off after ``seconds``; call the yielded function to restart the timer.

    A clock in the loop that reads is not enough: one read can last as long as a server drips
    trailers or a gzip header.

    TransientError: it took longer.
    """
    timers, late = list[threading.Timer](), threading.Event()

    def cut() -> None:
        late.set()
        with suppress(ValueError, RuntimeError, OSError):  # the answer has ended
            response.raw.shutdown()

    def restart() -> None:
        stop()
        timers.append(threading.Timer(seconds, cut))
        timers[0].daemon = True
        timers[0].start()

    def stop() -> None:
        while timers:
            timers.pop().cancel()

    restart()
    try:
        yield restart
    except (requests.RequestException, HTTPError):
        if not late.is_set():
            raise
    finally:
        stop()
    if late.is_set():
        raise TransientError(f"no whole answer within {seconds:.0f} s")


def raise_transient(status: int, headers: Mapping[str, str], detail: str = "") -> None:
    """Raise `TransientError` for a status that another try may change; ``detail`` explains it."""
    if status in {408, 425, 429} or status >= 500:
        seconds = None
        with suppress(KeyError, HTTPError, ValueError, OverflowError):
            # A number of seconds, or a date (RFC 9110, 10.2.3).
            seconds = Retry().parse_retry_after(headers["Retry-After"])
        raise TransientError(f"it answered {status}{detail}", seconds)


def _translate_error(error: Exception, url: str) -> Exception:
    """Return why there was no whole answer, without addresses of proxies or memory in it."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return MachineError(
            f"{redact(url)}: its TLS certificate is not trusted here; if your network re-signs "
            "TLS, set ca_bundle in the settings."
        )
    if isinstance(error, requests.TooManyRedirects):
        return MachineError(f"{redact(url)}: too many redirects.")
    return TransientError(reason(error))


def reason(error: BaseException) -> str:
    """Return why there was no answer, in the system's words instead of a library's."""
    for kinds, text in _REASONS:
        if isinstance(error, kinds):
            return text
    if isinstance(error, requests.ConnectionError):
        cause = _CAUSE.search(str(error))
        return f"no connection: {cause[1]}" if cause else "no connection"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
