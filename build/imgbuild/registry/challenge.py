"""What a registry says with 401: how it wants to be asked (RFC 9110, section 11.6.1)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: A name alone is a scheme; with "=" and a value, it is a parameter of the scheme before it.
_WORD = re.compile(
    r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]+)))?"
)


@dataclass(frozen=True)
class Challenge:
    """One way to ask: ``bearer`` or ``basic``, and its parameters by lower-case name."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def read_challenges(header: str) -> tuple[Challenge, ...]:
    """Return the challenges of a ``WWW-Authenticate`` header, in its order."""
    found: list[tuple[str, dict[str, str]]] = []
    for word in _WORD.finditer(header):
        name, quoted, plain = word.groups()
        if quoted is None and plain is None:
            found.append((name.lower(), {}))
        elif found:
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found[-1][1][name.lower()] = value
    return tuple(Challenge(scheme, parameters) for scheme, parameters in found)


def challenge_of(header: str, scheme: str) -> Challenge | None:
    """Return the challenge of one scheme, if the header has it."""
    return next((one for one in read_challenges(header) if one.scheme == scheme), None)
