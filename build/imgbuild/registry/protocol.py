"""What imgbuild asks of a registry: `HttpRegistry` is the real one, `MemoryRegistry` for tests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from imgbuild.errors import CheckFailedError
from imgbuild.registry.file_content import FileContent

#: What is read of a registry at most, in bytes: a blob that is a document, and all else.
LARGEST_BLOB, LARGEST_ANSWER = 1 << 28, 1 << 24


@dataclass(frozen=True)
class Manifest:
    """A manifest as its registry holds it; ``content`` are the very bytes of ``digest``."""

    digest: str
    media_type: str
    content: bytes

    def document(self) -> Mapping[str, Any]:
        """Return what the bytes say.

        Raises:
            CheckFailedError: they are no JSON object.

        """
        try:
            found = json.loads(self.content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CheckFailedError(f"The manifest {self.digest} is no JSON object.")
        return found


class Registry(Protocol):
    """One repository of one registry. Threads may share it.

    Every method raises `MachineError` if the registry cannot be reached or keeps failing, and
    `CheckFailedError` if it refuses (unauthorized, denied) or gives what its digest does not say.
    A ``reference`` is a tag or a digest.
    """

    @property
    def name(self) -> str:
        """Return ``HOST[:PORT]/REPOSITORY``, for messages and as an engine's name of it."""

    def head(self, reference: str) -> str | None:
        """Return the digest of a manifest, or ``None`` if it is not there. Nothing is read."""

    def manifest(self, reference: str) -> Manifest | None:
        """Return a manifest, or ``None`` if it is not there."""

    def put_manifest(self, reference: str, content: bytes, media_type: str) -> str:
        """Store a manifest, all of whose blobs are there; return its digest. A tag moves."""

    def blob(self, digest: str) -> bytes:
        """Return a blob of at most `LARGEST_BLOB`; `CheckFailedError` if it is not there."""

    def put_blob(self, content: bytes) -> str:
        """Store a small blob, unless it is there; return its digest."""

    def has_blob(self, digest: str) -> bool:
        """Return whether a blob is there. Nothing is read."""

    def put_file(self, content: FileContent) -> None:
        """Store a blob of any size, unless it is there."""

    def tags(self) -> tuple[str, ...]:
        """Return every tag, sorted; none of a repository that does not exist yet."""

    def close(self) -> None:
        """Close the connections, and end whatever waits to try again."""
