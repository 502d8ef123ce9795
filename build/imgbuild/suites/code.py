"""The suites of the checkout: which there are, and the digest of their code."""

import hashlib
from pathlib import Path

from imgbuild.errors import InputError

PREFIX = "test_"


def list_suites(folder: Path) -> tuple[str, ...]:
    """Return the names of the suites: the files ``test_NAME.py`` of ``folder``."""
    return tuple(sorted(path.stem.removeprefix(PREFIX) for path in folder.glob(f"{PREFIX}*.py")))


def choose_suites(folder: Path, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the wanted suites, all if none is named.

    Raises:
        InputError: a name is no suite; those that exist are listed.

    """
    known = list_suites(folder)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InputError(f"No suite {', '.join(unknown)}. There are: {', '.join(known)}.")
    return tuple(name for name in known if not wanted or name in wanted)


def code_digest(folder: Path) -> str:
    """Return the sha256 of all suite code: a report counts only for the code that made it."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"
