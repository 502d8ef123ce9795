"""HTTP as the audit needs it: bounded pages, and short causes when nothing answers."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from imgbuild.audit.failure import ReadError, StatusError, UnreachableError
from imgbuild.errors import InputError
from imgbuild.http import CA_VARIABLES, SYSTEM_BUNDLES, shown

#: Seconds to connect, and seconds without a single byte.
TIMEOUT = (5.0, 30.0)
#: For sites that may well not be there.
INPUT_TIMEOUT = (5.0, 10.0)
#: The largest page of the index seen is 1.2 MB (numpy).
PAGE_LIMIT = 64 << 20
_CHUNK = 256 << 10
_AGENT = {"User-Agent": "imgbuild-audit", "Accept-Encoding": "identity"}
#: Words of the libraries' messages, and what is said of them.
_CAUSES = {
    "name or service not known": "DNS",
    "name resolution": "DNS",
    "failed to resolve": "DNS",
    "connection refused": "refused",
    "timed out": "timeout",
    "certificate": "TLS certificate",
    "proxy": "proxy",
    "unreachable": "no route",
}


@dataclass(frozen=True)
class Page:
    """A document that was read whole; ``url`` is where it was found after redirections."""

    url: str
    content_type: str
    content: bytes


class Client:
    """One pool of connections. May be used by several threads at once."""

    def __init__(
        self,
        ca_bundle: str | None = None,
        timeout: tuple[float, float] = TIMEOUT,
        retries: int = 2,
    ) -> None:
        self._verify: str | bool = ca_bundle or True
        self._timeout = timeout
        self._counting = threading.Lock()
        self.bytes_read = 0
        self._session = requests.Session()
        self._session.headers.update(_AGENT)
        retry = Retry(
            total=retries,
            connect=min(retries, 1),
            status_forcelist=(502, 503, 504),
            backoff_factor=0.3,
            raise_on_status=False,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=16, max_retries=retry))

    def get_page(self, url: str, accept: str) -> Page:
        """Return a whole document.

        Raises:
            UnreachableError: nothing answers.
            StatusError: the status is not 200.
            ReadError: it breaks off, or is larger than any such page.

        """
        with self.answering(url, {"Accept": accept, "Accept-Encoding": "gzip"}) as answer:
            if answer.status_code != requests.codes.ok:
                raise StatusError(_refused(url, answer), answer.status_code)
            content = _limited(answer, url, PAGE_LIMIT)
            self.count(len(content))
            return Page(answer.url, answer.headers.get("Content-Type", ""), content)

    def count(self, arrived: int) -> None:
        """Add to ``bytes_read``, the sum over all threads."""
        with self._counting:
            self.bytes_read += arrived

    @contextmanager
    def answering(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[requests.Response]:
        """Give the answer to a GET, its body unread; every failure inside has its paragraph.

        Raises:
            UnreachableError: nothing answers, or the body breaks off.

        """
        try:
            with self._session.get(
                url, headers=headers, stream=True, timeout=self._timeout, verify=self._verify
            ) as answer:
                yield answer
        except (requests.RequestException, OSError) as error:
            cause = short_cause(error)
            raise UnreachableError(
                f"{shown(url)} cannot be read: {cause}. See `imgbuild doctor`; a proxy is "
                "HTTPS_PROXY, a CA of your network is ca_bundle in imgbuild.local.yaml.",
                cause,
            ) from error


def body(
    answer: requests.Response, limit: int, tell: Callable[[int], None] = lambda _: None
) -> bytes:
    """Return at most ``limit`` + 1 bytes of an answer, telling each arrived number of bytes."""
    parts: list[bytes] = []
    total = 0
    for chunk in answer.iter_content(_CHUNK):
        parts.append(chunk)
        total += len(chunk)
        tell(len(chunk))
        if total > limit:
            break
    return b"".join(parts)[: limit + 1]


def _limited(answer: requests.Response, url: str, limit: int) -> bytes:
    content = body(answer, limit)
    if len(content) > limit:
        raise ReadError(f"{shown(url)} is larger than {limit >> 20} MiB; not read further.")
    return content


def _refused(url: str, answer: requests.Response) -> str:
    return f"{shown(url)}: the server says {answer.status_code} {answer.reason}."


def short_cause(error: BaseException) -> str:
    """Return why nothing answers, in a word or two."""
    text = str(error).lower()
    if isinstance(error, requests.Timeout):
        return "timeout"
    for sign, cause in _CAUSES.items():
        if sign in text:
            return cause
    broken = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
    return "broke off" if isinstance(error, broken) else type(error).__name__


def choose_bundle(
    configured: str | None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the CA bundle to trust: the settings', the environment's, the system's.

    Raises:
        InputError: the one that was named does not exist.

    """
    named = {"imgbuild.local.yaml: ca_bundle": configured}
    named |= {variable: environment.get(variable) for variable in CA_VARIABLES}
    for source, path in named.items():
        if path and not Path(path).exists():
            raise InputError(f"{source} names {path}, which does not exist. Mend or remove it.")
        if path:
            return path
    return next((str(path) for path in SYSTEM_BUNDLES if path.is_file()), None)
