"""Content is what its digest says, or it is not taken."""

import hashlib

from imgbuild.errors import CheckFailedError


def digest_of(content: bytes) -> str:
    """Return ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def is_digest(reference: str) -> bool:
    """Return whether a reference is a digest; a tag has no colon."""
    return ":" in reference


def checked(content: bytes, digest: str, what: str) -> bytes:
    """Return the content.

    Raises:
        CheckFailedError: its digest is another.

    """
    found = digest_of(content)
    if found != digest:
        raise CheckFailedError(
            f"{what}: the registry gave content with digest {found} for {digest}. Nothing was "
            "kept. Its storage, or a proxy before it, is damaged."
        )
    return content
