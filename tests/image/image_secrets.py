"""What gives a secret away by its text: in files of any name, the environment, the history.

A name of a file says little; these are found wherever they are. Nothing of what was found is shown.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Kind:
    """A kind of secret: a literal that each has, the whole pattern, and the folders with such."""

    name: str
    literal: str
    pattern: str
    folders: tuple[str, ...] = ("/",)


#: Where settings are: elsewhere, logins in addresses are examples in a package's documentation.
SETTINGS = ("/etc", "/root", "/home", "/srv", "/opt/python/etc", "/opt/python/pip.conf")
_LOGIN = r"[^\s/:@\"'<>]+:[^\s/:@\"'<>]+@[\w.-]+"

#: The head of a key alone is in every program that reads keys; a key has a body too.
KINDS = (
    Kind(
        "private key",
        "PRIVATE KEY",
        r"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----(\s|\\[rn])+[\w+/=:,\- \r\n\\]{64}",
    ),
    Kind("PuTTY key", "PuTTY-User-Key-File", r"PuTTY-User-Key-File-\d: [\w-]+\s"),
    # The keys in Amazon's documentation, which botocore has, end with EXAMPLE.
    Kind("AWS key", "AKIA", r"\bAKIA(?![0-9A-Z]{9}EXAMPLE\b)[0-9A-Z]{16}\b"),
    Kind("GitHub token", "ghp_", r"\bghp_[A-Za-z0-9]{36}\b"),
    Kind("GitHub token", "github_pat_", r"\bgithub_pat_\w{60,}"),
    Kind("npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    Kind("PyPI token", "pypi-AgE", r"\bpypi-AgE[\w-]{50,}"),
    Kind("Slack token", "xoxb-", r"\bxoxb-[0-9A-Za-z-]{20,}"),
    Kind("Google key", "AIza", r"\bAIza[\w-]{35}\b"),
    Kind("login in an address", "://", rf"\b\w+://{_LOGIN}", SETTINGS),
    Kind("netrc", "machine", r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+\S", SETTINGS),
    Kind("registry login", '"auth"', r'"auth"\s*:\s*"[\w+/=]{8,}"', SETTINGS),
    Kind("npm login", "_auth", r"_auth(Token)?\s*=\s*\S", SETTINGS),
    Kind("AWS key", "aws_secret_access_key", r"aws_secret_access_key\s*=\s*\S", SETTINGS),
)
#: Variables that hold secrets, as names; a proxy is the build's network, and may have a login.
TELLING = re.compile(
    r"(?i)\b\w*(token|secret|passw(or)?d|api_?key|access_?key|credentials?)\w*=(?=\S)"
    r"|\b(https?|ftp|all)_proxy=(?=\S)"
)

_TESTS_OF_A_PACKAGE = re.compile(r"/site-packages/.+/tests?/")


def kinds_as_json() -> str:
    """Return the kinds as the program `matching_files.py` reads them."""
    return json.dumps([asdict(kind) for kind in KINDS])


def in_files(found: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a line a file from what `matching_files.py` found, by kind.

    Keys in the tests of an installed package, such as those of `future`, are no secret: whoever
    installs the package has them.
    """
    return sorted(
        f"{kind}: {path}"
        for kind, paths in found.items()
        for path in paths
        if not _TESTS_OF_A_PACKAGE.search(path)
    )


def in_texts(place: str, texts: Iterable[str]) -> list[str]:
    """Return a line a text of a configuration that tells a secret, without the secret."""
    return sorted({f"{place}: {what}" for text in texts for what in _secrets_of(text)})


def _secrets_of(text: str) -> list[str]:
    names = [found[0].partition("=")[0] for found in TELLING.finditer(text)]
    return [*names, *(kind.name for kind in KINDS if re.search(kind.pattern, text))]
