"""A registry as it would be: what is written to it stays here, the real one is only read."""

from imgbuild.registry.digest import digest_of, is_digest
from imgbuild.registry.file_content import FileContent
from imgbuild.registry.protocol import Manifest, Registry


class OverlayRegistry:
    """A `Registry` on top of another, for what asks what would be done."""

    def __init__(self, below: Registry) -> None:
        self._below = below
        self._tagged: dict[str, str] = {}
        self._manifests: dict[str, Manifest] = {}
        self._blobs: dict[str, bytes] = {}

    @property
    def name(self) -> str:
        """The name of the real one."""
        return self._below.name

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

    def has_blob(self, digest: str) -> bool:
        """Return whether a blob is there."""
        return digest in self._blobs or self._below.has_blob(digest)

    def put_file(self, content: FileContent) -> None:
        """Keep a file's bytes here."""
        with content.opened() as file:
            self._blobs[content.digest] = file.read()

    def tags(self) -> tuple[str, ...]:
        """Return every tag, sorted."""
        return tuple(sorted({*self._below.tags(), *self._tagged}))

    def close(self) -> None:
        """Forget what was written; the real one stays open."""
        self._tagged.clear()
        self._manifests.clear()
        self._blobs.clear()
