"""A registry as it would be: what is written to it stays here, the real one is only read."""

from imgbuild.http import HttpClient
from imgbuild.registry.client import RegistryClient
from imgbuild.registry.manifest import Manifest, digest_of, is_digest


class OverlayRegistry(RegistryClient):
    """A registry on top of another, for what asks what would be done."""

    def __init__(self, below: RegistryClient) -> None:
        super().__init__(below.repository, HttpClient())
        self._below = below
        self._tagged: dict[str, str] = {}
        self._manifests: dict[str, Manifest] = {}
        self._blobs: dict[str, bytes] = {}

    def head(self, reference: str) -> str | None:
        """Return the digest of a manifest."""
        digest = self._tagged.get(reference, reference)
        return digest if digest in self._manifests else self._below.head(digest)

    def manifest(self, reference: str) -> Manifest | None:
        """Return a manifest."""
        digest = self._tagged.get(reference, reference)
        return self._manifests.get(digest) or self._below.manifest(digest)

    def put_manifest(self, reference: str, content: bytes, media_type: str) -> str:
        """Keep a manifest here."""
        digest = digest_of(content)
        self._manifests[digest] = Manifest(digest, media_type, content)
        if not is_digest(reference):
            self._tagged[reference] = digest
        return digest

    def blob(self, digest: str) -> bytes:
        """Return a small blob."""
        return self._blobs[digest] if digest in self._blobs else self._below.blob(digest)

    def put_blob(self, content: bytes) -> str:
        """Keep a small blob here."""
        digest = digest_of(content)
        self._blobs[digest] = content
        return digest

    def tags(self) -> tuple[str, ...]:
        """Return every tag, sorted."""
        return tuple(sorted({*self._below.tags(), *self._tagged}))
