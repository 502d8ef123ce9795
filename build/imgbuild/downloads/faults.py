"""What is said when a file did not come, or was not the right one: one paragraph each."""

import re
from dataclasses import dataclass

import requests

from imgbuild.downloads.download import Download
from imgbuild.downloads.sites import Sites, shown
from imgbuild.errors import CheckFailedError, ImgbuildError, MachineError

_HTML = re.compile(rb"\s*(<!doctype html|<html)", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_LONGEST_TITLE = 80
_UNTRUSTED = (
    "its TLS certificate is not trusted here; where a network re-signs TLS, settings name its CA "
    "as ca_bundle"
)
#: The first that fits: some are kinds of others.
_REASONS = (
    (requests.exceptions.SSLError, _UNTRUSTED),
    (requests.exceptions.ProxyError, "the proxy of this machine cannot be reached"),
    (requests.exceptions.ConnectTimeout, "no connection in time"),
    (requests.exceptions.ReadTimeout, "no answer in time"),
    (requests.TooManyRedirects, "it redirects without end"),
)


class TryAgainError(Exception):
    """A fault that may pass by itself; the message completes "… : "."""


class WrongContentError(CheckFailedError):
    """What came is another file than the sha256 of ``download`` says."""

    def __init__(self, message: str, download: Download) -> None:
        super().__init__(message)
        self.download = download


class NotFetchedError(MachineError):
    """``download`` cannot be had from here."""

    def __init__(self, message: str, download: Download) -> None:
        super().__init__(message)
        self.download = download


@dataclass(frozen=True)
class Content:
    """What came: its sha256, size in bytes, the kind that the server called it, its beginning."""

    sha256: str
    size: int
    kind: str = ""
    head: bytes = b""
    resumed: bool = False


def wrong_content(download: Download, address: str, content: Content) -> ImgbuildError:
    """Return the error of a file that is not what its sha256 says."""
    page = _page(content)
    hint = (
        f" What came is an HTML page{page}: a login, a notice or an error of the mirror or of a "
        "proxy, not the file. Open the address in a browser to see what it wants."
        if page is not None
        else " Nothing was kept. If the file was published anew, read what changed before you "
        "change the sha256 in matrix.yaml; if a mirror is at fault, mend it (docs/guide.md)."
    )
    return WrongContentError(
        f"{download.file_name} is not what was asked for: {shown(address)} gave {content.size} "
        f"bytes with sha256 {content.sha256}, expected is {download.sha256}.{hint}",
        download,
    )


def refused(download: Download, address: str, status: int, sites: Sites) -> ImgbuildError:
    """Return the error of an answer that another try would not change."""
    return NotFetchedError(
        f"{download.file_name} cannot be fetched: {shown(address)} answered {status}"
        f"{_meaning(status, address, sites)}. {other_site(sites, address)}",
        download,
    )


def gave_up(
    download: Download, address: str, reason: str, attempts: int, sites: Sites
) -> MachineError:
    """Return the error after the last try."""
    return NotFetchedError(
        f"{download.file_name} cannot be fetched: {shown(address)}: {reason} ({attempts} tries). "
        f"{other_site(sites, address)}",
        download,
    )


def reason_of(error: Exception) -> str:
    """Return why there was no whole answer, without addresses of proxies or memory in it."""
    for kind, text in _REASONS:
        if isinstance(error, kind):
            return text
    if isinstance(error, requests.exceptions.ConnectionError):
        return f"no connection{_cause(error)}"
    return str(error) or type(error).__name__


def _meaning(status: int, address: str, sites: Sites) -> str:
    if status in {401, 403, 407}:
        has = sites.login(address) is not None
        which = "refused the login of the netrc file" if has else "asks for a login"
        what = "correct it there" if has else "name a netrc file with one (netrc: in the settings)"
        return f": it {which}; {what}"
    return {404: ": there is no such file", 410: ": the file is gone"}.get(status, "")


def other_site(sites: Sites, address: str) -> str:
    """Return what to do about a site that does not give what it should."""
    mirrored = any(address.startswith(url) for url in sites.mirrors.values())
    if mirrored:
        return "That is a mirror of imgbuild.local.yaml: see that it holds the file."
    return "Where this site cannot be reached, name a mirror of it (docs/guide.md)."


def _cause(error: BaseException | None) -> str:
    """Return what the system said: ``: Connection refused``, ``: Name or service not known``."""
    while error is not None:
        # requests' own errors are OSErrors too, without a number.
        if isinstance(error, OSError) and error.errno and error.strerror:
            return f": {error.strerror}"
        nested = [getattr(error, "reason", None), *error.args, error.__cause__, error.__context__]
        error = next((inner for inner in nested if isinstance(inner, BaseException)), None)
    return ""


def _page(content: Content) -> str | None:
    """Return ``None`` if the content is no HTML page, else its title in brackets or nothing."""
    head = content.head.removeprefix(b"\xef\xbb\xbf")
    if "html" not in content.kind.lower() and not _HTML.match(head):
        return None
    found = _TITLE.search(head)
    title = " ".join(found[1].decode("utf-8", "replace").split()) if found else ""
    fits = 0 < len(title) <= _LONGEST_TITLE and title.isprintable()
    return f" (“{title}”)" if fits else ""
