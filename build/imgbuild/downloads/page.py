"""Small answers whose hash is not known: indexes, manifests, tokens. Read whole, within a limit."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import requests
from urllib3.exceptions import HTTPError

from imgbuild.downloads import transfer
from imgbuild.downloads.faults import TryAgainError, other_site, reason_of
from imgbuild.downloads.sites import Sites, shown
from imgbuild.downloads.web import answer
from imgbuild.errors import MachineError

_CHUNK = 1 << 20
_SMALL = 1 << 24  # bytes


@dataclass(frozen=True)
class Page:
    """An answer: its status, body and headers. The caller judges the status."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def read_page(
    url: str, sites: Sites, headers: Mapping[str, str] | None = None, *, limit: int = _SMALL
) -> Page:
    """Return the answer of ``url``, or of its mirror, read whole; ``limit`` is in bytes.

    Tried again on faults that may pass. https is never left for http.

    Raises:
        MachineError: there is no answer, a server error, or more than ``limit``.

    """
    address = sites.address(url)
    reason = ""
    for attempt in range(transfer.ATTEMPTS):
        threading.Event().wait(transfer.PAUSE_SECONDS * attempt)
        try:
            return _read(address, sites, headers or {}, limit)
        except TryAgainError as error:
            reason = str(error)
        except (requests.RequestException, HTTPError) as error:
            reason = reason_of(error)
    raise MachineError(
        f"{shown(address)}: {reason} ({transfer.ATTEMPTS} tries). {other_site(sites, address)}"
    )


def _read(address: str, sites: Sites, headers: Mapping[str, str], limit: int) -> Page:
    body = bytearray()
    with answer(address, sites, headers, hash_known=False) as response:
        if response.status_code in transfer.PASSING:
            raise TryAgainError(f"it answered {response.status_code} ({response.reason})")
        for chunk in response.raw.stream(_CHUNK, decode_content=True):
            body += chunk
            if len(body) > limit:
                raise MachineError(f"{shown(address)} sent more than {limit >> 20} MiB: refused.")
        return Page(response.status_code, bytes(body), response.headers)
