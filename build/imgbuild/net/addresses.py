"""Compare, check, redact and resolve addresses of sites and names of images."""

import ipaddress
import re
from contextlib import suppress
from urllib.parse import urljoin, urlsplit, urlunsplit

from imgbuild.core.errors import MachineError

#: The supported schemes, with their default ports.
PORTS = {"http": 80, "https": 443}


def redact(url: str) -> str:
    """Return an address for messages, without its login and its query, which may hold a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def same_site(url: str, other: str) -> bool:
    """Return whether two addresses have the same scheme, host and port."""
    return _site(url) == _site(other)


def _site(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme)


def is_unencrypted(url: str) -> bool:
    """Return whether data for an address crosses a network unencrypted."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.netloc)


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without port, is this machine; names are not resolved."""
    name = ""
    with suppress(ValueError):  # no valid host, or a name instead of an IP address
        name = urlsplit(f"//{host}").hostname or ""
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"


def has_registry(image: str) -> bool:
    """Return whether an image's name begins with a registry; if not, it is on Docker Hub.

    Source: "splitDockerDomain" in distribution's package "reference".
    """
    host, slash, _ = image.partition("/")
    return slash != "" and (host == "localhost" or "." in host or ":" in host)


def familiar_name(image: str) -> str:
    """Return an image's name as engines list it, without Docker Hub's host and ``library/``.

    Source: "familiarizeName" in distribution's package "reference".
    """
    return re.sub(r"^(index\.)?docker\.io/(library/)?", "", image)


def resolve_redirect(here: str, location: str) -> str:
    """Return the absolute address of a ``Location``, which may be relative, without a login.

    MachineError: the address is invalid, is neither http nor https, or leads from https to http.
    """
    try:
        parts = urlsplit(urljoin(here, location))
        _ = parts.port
    except ValueError as error:
        raise MachineError(f"{redact(here)} leads to an invalid address: {error}.") from None
    there = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if parts.scheme not in PORTS:
        raise MachineError(
            f"{redact(here)} leads to {redact(there)}, which is neither http nor https."
        )
    if here.startswith("https:") and parts.scheme != "https":
        raise MachineError(
            f"{redact(here)} leads from https to {redact(there)}. Configure the proxy in front of "
            "the server to send X-Forwarded-Proto: https, or the server to send relative addresses."
        )
    return there
