"""The client for all HTTP requests: time limits, redirects, TLS, logins and retries."""

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

#: The default size limit of an answer that is read whole, in bytes.
LARGEST_ANSWER = 1 << 24
#: The longest wait between two tries, and the longest that a server may request, in seconds.
LONGEST_WAIT, LONGEST_REQUESTED = 60.0, 300.0
#: Time limits for the headers of an answer, and for an answer that is read whole, in seconds. A
#: limit for each read is not enough: a server that sends one byte a second would never exceed it.
HEADERS_SECONDS, ANSWER_SECONDS = 120.0, 300.0
_CHUNK = 1 << 18
#: The first match counts, because some of these errors are subclasses of others.
_REASONS = (
    (requests.exceptions.ProxyError, "the proxy of this machine cannot be reached"),
    (requests.exceptions.SSLError, "TLS failed, or the server does not support it"),
    (requests.exceptions.ConnectTimeout, "no connection in time"),
    ((requests.exceptions.ReadTimeout, ReadTimeoutError), "no answer in time"),
    ((requests.exceptions.ChunkedEncodingError, ProtocolError), "the answer was cut off"),
)
#: The system's message in the text of an error, for example ``Connection refused``.
_CAUSE = re.compile(r"(?:\[Errno -?\d+\] |Error\(\d+, ['\"])([^'\")]+)")


class TransientError(Exception):
    """A temporary fault; the message follows the request and a colon: ``GET URL: MESSAGE``.

    ``wait`` is the time that the server wants the client to wait before a retry, in seconds.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with full jitter, so that clients do not all retry at the same moment.

    ``first_wait`` is the longest wait before the second try, in seconds. Source: M. Brooker,
    "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    attempts: int
    first_wait: float

    def wait(self, failed: int, requested: float | None = None) -> float:
        """Return the seconds to wait after ``failed`` tries; infinite if there is no further try.

        There is also no further try if the server ``requested`` more than `LONGEST_REQUESTED`.
        """
        if failed >= self.attempts or (requested or 0.0) > LONGEST_REQUESTED:
            return inf
        most = min(LONGEST_WAIT, self.first_wait * 2.0 ** (failed - 1))
        return max(random.uniform(0.0, most), requested or 0.0)  # noqa: S311 - no secret


@dataclass(frozen=True)
class Answer:
    """An answer with its whole body, and the address that it came from after redirects."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class HttpClient:
    """Sends requests over connections that are kept alive; threads may share it.

    - ``verify``: CA bundle, or whether to verify TLS, as for ``requests``
    - ``login``: returns the ``Authorization`` header for an address, or an empty text
    - ``log``: called with one line before each retry
    - ``seconds``: time limits for connecting, and for each wait for data
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
        """Close idle connections; a thread that waits for a retry gives up."""
        self._closed.set()
        self._session.close()

    def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, limit: int = LARGEST_ANSWER
    ) -> Answer:
        """Return the answer to a GET; retry after temporary faults.

        The statuses 408, 425, 429 and 5xx count as temporary faults. The caller must check every
        other status. The errors are those of `retry` and `ask`.
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
        """Return the result of ``work``, and start it again after each `TransientError`.

        MachineError: the last try failed, or the client was closed. The message ends with the
            result of ``advice``.
        """
        failed = 0
        while True:
            try:
                return work()
            except TransientError as error:
                failed += 1
                seconds = self.policy.wait(failed, error.wait)
                if seconds < inf and not self.closed:
                    count = f"try {failed} of {self.policy.attempts} failed"
                    self._log(f"{what}: {error}. Retrying in {seconds:.1f} s ({count}).")
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
        """Send a request once and return the answer with its whole body, whatever the status.

        ``authorization`` is sent only to the site of ``url``. If the content is ``secret``, the
        request follows no redirect.

        TransientError: there was no connection, or no whole answer.
        MachineError: a retry would not help, because the certificate is not trusted, a redirect is
            wrong, or the answer has more than ``limit`` bytes.
        CheckFailedError: a login or a secret would be sent over plain http.
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
                        raise MachineError(f"{redact(url)} sent more than {size}, the limit.")
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
        """Send a request once and yield the answer with its body unread; see `ask`."""
        login = authorization or self._login(url)
        if (login or secret) and is_unencrypted(url):
            raise CheckFailedError(
                f"{redact(url)} uses plain http, so imgbuild does not send the login. Give the "
                "server a TLS certificate, or remove this machine's login for it."
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
            # Not chained, because the original error holds the request with its authorization.
            raise _translate_error(error, url) from None


class _Session(requests.Session):
    """Follows redirects that `resolve_redirect` allows, and sends logins only to the first site."""

    def __init__(self, verify: str | bool) -> None:
        super().__init__()
        self.verify = verify
        # The server must send files unchanged, not compressed.
        self.headers.update({"User-Agent": "imgbuild", "Accept-Encoding": "identity"})
        # Ignore the environment's logins (~/.netrc) and CAs.
        self.trust_env = False
        self.max_redirects = 10
        # Keep no cookies, because threads cannot share them safely.
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        for scheme in PORTS:
            self.mount(f"{scheme}://", HTTPAdapter(pool_maxsize=32))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        location = super().get_redirect_target(resp)
        # 301, 302 and 303 would turn a write into a GET.
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
    """Cut off the answer after ``seconds``; the yielded function restarts the timer.

    It is not enough to check the time between reads: a single read does not end while the server
    sends trailers or a gzip header byte by byte.

    TransientError: the answer took longer.
    """
    timers, late = list[threading.Timer](), threading.Event()

    def cut() -> None:
        late.set()
        with suppress(ValueError, RuntimeError, OSError):  # the answer has already ended
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
    """Raise `TransientError` for a status that a retry may change; ``detail`` ends its message."""
    if status in {408, 425, 429} or status >= 500:
        seconds = None
        with suppress(KeyError, HTTPError, ValueError, OverflowError):
            # The header is a number of seconds, or a date (RFC 9110, 10.2.3).
            seconds = Retry().parse_retry_after(headers["Retry-After"])
        raise TransientError(f"it answered {status}{detail}", seconds)


def _translate_error(error: Exception, url: str) -> Exception:
    """Return the error for a missing answer; its text has no addresses of proxies or memory."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return MachineError(
            f"{redact(url)}: this machine does not trust its TLS certificate. If your network "
            "replaces certificates with its own, set ca_bundle in the settings."
        )
    if isinstance(error, requests.TooManyRedirects):
        return MachineError(f"{redact(url)}: too many redirects.")
    return TransientError(reason(error))


def reason(error: BaseException) -> str:
    """Return why there was no answer; prefer the system's message to the library's."""
    for kinds, text in _REASONS:
        if isinstance(error, kinds):
            return text
    if isinstance(error, requests.ConnectionError):
        cause = _CAUSE.search(str(error))
        return f"no connection: {cause[1]}" if cause else "no connection"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
