"""The labels that every image of `imgbuild` has, and the forms that their values take.

`org.opencontainers.image.*` are OCI's (image-spec, annotations.md): `created` is RFC 3339, `source`
an address, `base.digest` a digest. The others are imgbuild's own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PIN = "imgbuild.pin."
OCI = "org.opencontainers.image."
_DIGEST = r"sha256:[0-9a-f]{64}"
_NAME = r"[a-z0-9]+([._/:-]+[A-Za-z0-9]+)*"

REQUIRED = {
    f"{OCI}title": _NAME,
    f"{OCI}version": r"\d+(\.\d+)+",
    f"{OCI}created": r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d(Z|[+-]\d\d:\d\d)",
    "imgbuild.name": _NAME,
    "imgbuild.input-digest": _DIGEST,
}
#: Told where the build knew it: a checkout without history has no revision, for one.
OPTIONAL = {
    f"{OCI}base.name": rf"{_NAME}(@{_DIGEST})?",
    f"{OCI}base.digest": _DIGEST,
    f"{OCI}source": r"(https|ssh|git)://[^\s@]+|[\w.-]+@[\w.-]+:\S+",
    f"{OCI}revision": r"[0-9a-f]{40}([0-9a-f]{24})?(-dirty)?",
    f"{OCI}licenses": r"\S.*",
}


def malformed(labels: Mapping[str, str]) -> list[str]:
    """Return a line a label that is missing, or whose value has not its form."""
    missing = [f"{name}: none" for name in REQUIRED if name not in labels]
    forms = {**REQUIRED, **OPTIONAL}
    return missing + [
        f"{name}: {value!r}"
        for name, value in sorted(labels.items())
        if name in forms and not re.fullmatch(forms[name], value)
    ]


def contradictions(labels: Mapping[str, str]) -> list[str]:
    """Return a line a label that another one contradicts."""
    pairs = ((f"{OCI}title", "imgbuild.name"), (f"{OCI}version", f"{PIN}tensorflow"))
    return [
        f"{one}: {labels.get(one)}, but {other}: {labels.get(other)}"
        for one, other in pairs
        if labels.get(one) != labels.get(other)
    ]
