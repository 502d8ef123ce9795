"""One GET: time limits, redirects, login and TLS. Who calls judges the answer."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
from requests.utils import get_environ_proxies

from imgbuild.downloads.sites import Sites

CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
_MOST_REDIRECTS = 10
_REDIRECTS = {301, 302, 303, 307, 308}
_ALWAYS = {"User-Agent": "imgbuild", "Accept-Encoding": "identity"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


class UnsafeRedirectError(requests.RequestException):
    """An answer led from https to something that can be read and changed on the way."""


@contextmanager
def answer(
    url: str, sites: Sites, headers: Mapping[str, str] | None = None, *, hash_known: bool
) -> Iterator[requests.Response]:
    """Give the answer to a GET of ``url``, redirects followed, its body not yet read.

    Logins go to the site of ``url`` itself only. Without a known hash, https stays https.

    Raises:
        requests.RequestException: there is no answer, or redirects lead in a circle or astray.

    """
    with requests.Session() as session:
        # From the environment come proxies alone: never a login (~/.netrc), never a CA.
        session.trust_env = False
        with closing(_follow(session, url, sites, headers or {}, hash_known)) as response:
            yield response


def _follow(
    session: requests.Session,
    url: str,
    sites: Sites,
    headers: Mapping[str, str],
    hash_known: bool,
) -> requests.Response:
    here = url
    for _ in range(_MOST_REDIRECTS):
        response = _ask(session, here, sites, headers, own=_site(here) == _site(url))
        location = response.headers.get("Location")
        if response.status_code not in _REDIRECTS or not location:
            return response
        response.close()
        there = _without_login(urljoin(here, location))
        if here.startswith("https:") and not there.startswith("https:") and not hash_known:
            raise UnsafeRedirectError("it leads from https to http")
        here = there
    raise requests.TooManyRedirects(f"more than {_MOST_REDIRECTS} redirects")


def _ask(
    session: requests.Session, url: str, sites: Sites, headers: Mapping[str, str], *, own: bool
) -> requests.Response:
    own_headers = {**_login(url, sites), **headers}
    foreign = {name: value for name, value in headers.items() if name != "Authorization"}
    return session.get(
        url,
        # A file is what the server has, not what it says it packed for the way.
        headers={**_ALWAYS, **(own_headers if own else foreign)},
        timeout=(CONNECT_SECONDS, READ_SECONDS),
        allow_redirects=False,
        stream=True,
        verify=sites.verify,
        proxies=get_environ_proxies(url),
    )


def _login(url: str, sites: Sites) -> dict[str, str]:
    login = sites.login(url)
    if login is None:
        return {}
    pair = b64encode(f"{login.user}:{login.password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def _site(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
