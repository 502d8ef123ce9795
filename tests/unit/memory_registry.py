"""A registry in memory."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from imgbuild.errors import CheckFailedError
from imgbuild.http import Answer, HttpClient, RetryPolicy
from imgbuild.registry.repository import (
    DOCKER_MANIFEST,
    Manifest,
    digest_of,
    is_digest,
    parse_repository,
)
from imgbuild.registry.repository_client import RegistryClient


class MemoryRegistry(RegistryClient):
    """A client without a server; ``calls`` is what it was asked, as ``head 1.0``.

    ``before`` is called with each of these before it is done: it may raise, wait or change things.
    """

    def __init__(
        self,
        name: str = "registry.test/team/app",
        before: Callable[[str], None] = lambda _call: None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        http = HttpClient(policy=RetryPolicy(3, 0.0), log=log)
        super().__init__(parse_repository(name, "test"), http)
        self.before = before
        self.calls: list[str] = []
        #: Digests by tag.
        self.tagged: dict[str, str] = {}
        #: By digest.
        self.manifests: dict[str, Manifest] = {}
        self.blobs: dict[str, bytes] = {}
        self._guard = threading.RLock()

    def head(self, tag: str) -> str | None:
        self._called(f"head {tag}")
        found = self._stored(tag)
        return found.digest if found else None

    def manifest(self, reference: str) -> Manifest | None:
        self._called(f"manifest {reference}")
        return self._stored(reference)

    def put_manifest(self, reference: str, content: bytes, media_type: str) -> str:
        """Store a manifest; refused, as by a real registry, if a blob of it is missing."""
        self._called(f"put {reference}")
        document, digest = json.loads(content), digest_of(content)
        described = (*document.get("manifests", ()), *document.get("layers", ()))
        wanted = [one["digest"] for one in (*filter(None, [document.get("config")]), *described)]
        with self._guard:
            missing = [one for one in wanted if one not in {*self.blobs, *self.manifests}]
            if missing or (is_digest(reference) and reference != digest):
                raise CheckFailedError(f"{self.name} refuses {reference}: blob unknown {missing}.")
            self.manifests[digest] = Manifest(digest, media_type, content)
            if not is_digest(reference):
                self.tagged[reference] = digest
        return digest

    def blob(self, digest: str) -> bytes:
        self._called(f"blob {digest}")
        if digest not in self.blobs:
            raise CheckFailedError(f"{self.name} has no blob {digest}.")
        return self.blobs[digest]

    def put_blob(self, content: bytes) -> str:
        digest = digest_of(content)
        self._called(f"put blob {digest}")
        with self._guard:
            self.blobs[digest] = content
        return digest

    def _read(self, method: str, path: str, *_: object, **__: object) -> Answer | None:
        """Answer as a registry that does not list what refers to a manifest."""
        self._called(f"{method} {path}")
        return None

    def tags(self) -> tuple[str, ...]:
        self._called("tags")
        with self._guard:
            return tuple(sorted(self.tagged))

    def add_image(
        self, tag: str, layers: Sequence[bytes] = (b"layer",), **config: object
    ) -> Manifest:
        """Put an image there, as an engine's push does; no call. Its configuration has the tag."""

        def described(content: bytes, kind: str) -> dict[str, Any]:
            digest = digest_of(content)
            self.blobs[digest] = content
            return {"mediaType": kind, "digest": digest, "size": len(content)}

        docker = "application/vnd.docker."
        document = {
            "schemaVersion": 2,
            "mediaType": DOCKER_MANIFEST,
            "config": described(
                json.dumps({"tag": tag, **config}).encode(), f"{docker}container.image.v1+json"
            ),
            "layers": [described(layer, f"{docker}image.rootfs.diff.tar.gzip") for layer in layers],
        }
        return self.add_manifest(tag, document, DOCKER_MANIFEST)

    def add_manifest(self, tag: str, document: Mapping[str, object], kind: str) -> Manifest:
        """Put a manifest there, whatever it says; no call."""
        content = json.dumps(document).encode()
        manifest = Manifest(digest_of(content), kind, content)
        with self._guard:
            self.manifests[manifest.digest] = manifest
            self.tagged[tag] = manifest.digest
        return manifest

    def _called(self, call: str) -> None:
        with self._guard:
            self.calls.append(call)
        self.before(call)

    def _stored(self, reference: str) -> Manifest | None:
        with self._guard:
            digest = reference if is_digest(reference) else self.tagged.get(reference, "")
            return self.manifests.get(digest)
