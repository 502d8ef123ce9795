"""Addresses of sites: which is the same, which is safe, and how messages show them."""

import ipaddress
import re
from contextlib import suppress
from urllib.parse import urljoin, urlsplit, urlunsplit

from imgbuild.core.errors import MachineError

#: The schemes that are spoken, with their ports.
PORTS = {"http": 80, "https": 443}


def redact(url: str) -> str:
    """Return an address for messages: without login, and without query, which may be a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def same_site(url: str, other: str) -> bool:
    """Return whether two addresses are of one scheme, host and port."""
    return _site(url) == _site(other)


def _site(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme)


def is_unencrypted(url: str) -> bool:
    """Return whether all on the way could read what is sent to an address."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not is_loopback(parts.netloc)


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without port, is this machine, without resolving its name."""
    name = ""
    with suppress(ValueError):  # no host, or none that is an address
        name = urlsplit(f"//{host}").hostname or ""
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"


def has_registry(image: str) -> bool:
    """Return whether an image's name begins with a registry; without, it is one of Docker Hub.

    Source: distribution's package reference, "splitDockerDomain".
    """
    host, slash, _ = image.partition("/")
    return slash != "" and (host == "localhost" or "." in host or ":" in host)


def familiar_name(image: str) -> str:
    """Return an image's name without Docker Hub's, as engines list it.

    Source: distribution's package reference, "familiarizeName".
    """
    return re.sub(r"^(index\.)?docker\.io/(library/)?", "", image)


def resolve_redirect(here: str, location: str) -> str:
    """Return the address that a ``Location`` names; it may be relative. https stays https.

    MachineError: it leads from https to something else, to neither http nor https, or nowhere.
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
            f"{redact(here)} leads from https to {redact(there)}. A proxy before the server has to "
            "tell it X-Forwarded-Proto: https, or the server has to give relative addresses."
        )
    return there
