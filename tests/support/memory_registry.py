"""A registry in memory: the real client, whose requests are answered here."""

import json
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from imgbuild.core.errors import CheckFailedError
from imgbuild.net.http import Answer, HttpClient, RetryPolicy
from imgbuild.net.repository import DOCKER_MANIFEST, Manifest, digest_of, parse_repository
from imgbuild.net.repository_client import RegistryClient, error_text

#: How `calls` name the requests; those that only prepare an upload have no name.
_CALLS = {
    "HEAD manifests": "head ",
    "GET manifests": "manifest ",
    "PUT manifests": "put ",
    "DELETE manifests": "delete ",
    "GET blobs": "blob ",
    "PUT blobs": "put blob ",
    "GET tags": "tags",
}
#: A status, headers and a body.
_Answered = tuple[int, dict[str, str], bytes]
_ABSENT: _Answered = (404, {}, b'{"errors": [{"code": "UNKNOWN"}]}')


def configuration_bytes(tag: str, layers: Sequence[bytes] = (b"layer",), **config: object) -> bytes:
    """Return the configuration that `MemoryRegistry.add_image` makes; ``config`` are its parts."""
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": {"tag": tag}},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
    }
    return json.dumps({**document, **config}).encode()


class MemoryRegistry(RegistryClient):
    """A client without a server; ``calls`` is what it was asked, as ``head 1.0``.

    ``before`` is called with each of these before it is done: it may raise, wait or change things.
    An answer lists ``page`` tags. It does not list what refers to a manifest.
    """

    def __init__(
        self, name: str = "registry.test/team/app", log: Callable[[str], None] = lambda _: None
    ) -> None:
        http = HttpClient(policy=RetryPolicy(3, 0.0), log=log)
        super().__init__(parse_repository(name, "test"), http)
        self.before: Callable[[str], None] = lambda _: None
        self.calls: list[str] = []
        self.page = 1000
        #: Digests by tag.
        self.tagged: dict[str, str] = {}
        #: By digest.
        self.manifests: dict[str, Manifest] = {}
        self.blobs: dict[str, bytes] = {}
        self._guard = threading.RLock()

    def ask(  # noqa: PLR0913, PLR0917 - as the real one
        self,
        what: str,
        method: str,
        path: str,
        expected: Container[int] = (200, 404),
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        most: int = 0,  # noqa: ARG002
    ) -> Answer:
        kind = (headers or {}).get("Content-Type", "")
        answer = self.answer(method, path, kind, content or b"")
        if answer.status not in expected:
            raise CheckFailedError(f"{self.name}: {what}: {answer.status}{error_text(answer)}")
        return answer

    def answer(self, method: str, path: str, kind: str, content: bytes) -> Answer:
        """Answer a request; its path may be below the repository, or a whole one."""
        root = f"/v2/{self._repository.path}/"
        parts = urlsplit(path.rpartition(root)[2].removeprefix("/"))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        what, _, reference = parts.path.partition("/")
        reference = query.get("digest", reference)
        if call := _CALLS.get(f"{method} {what}"):
            call += "" if what == "tags" else reference
            self.calls.append(call)
            self.before(call)
        with self._guard:
            if what == "manifests":
                status, headers, body = self._manifest(method, reference, kind, content)
            elif what == "tags":
                status, headers, body = self._tags(root, query.get("last", ""))
            else:
                status, headers, body = self._blob(method, root, reference, content)
        return Answer(status, headers, body, f"https://{self._repository.host}{root}")

    def _manifest(self, method: str, reference: str, kind: str, content: bytes) -> _Answered:
        """Store it, refused, as by a real registry, if a blob is missing; give it, or delete it."""
        if method == "PUT":
            made = Manifest(digest_of(content), kind, content)
            document, refers = made.document(), ":" in reference
            described = [*document.get("manifests", ()), *document.get("layers", ())]
            described += [document["config"]] if "config" in document else []
            missing = {one["digest"] for one in described} - {*self.blobs, *self.manifests}
            if missing or (refers and reference != made.digest):
                return 400, {}, b""
            self.manifests[made.digest] = made
            self.tagged |= {} if refers else {reference: made.digest}
            return 201, {"Docker-Content-Digest": made.digest}, b""
        found = self.manifests.get(self.tagged.get(reference, reference))
        if found and method == "DELETE":
            del self.manifests[found.digest]
            self.tagged = {tag: one for tag, one in self.tagged.items() if one != found.digest}
            return 202, {}, b""
        if found is None:
            return _ABSENT
        headers = {"Content-Type": found.media_type, "Docker-Content-Digest": found.digest}
        return 200, headers, found.content

    def _blob(self, method: str, root: str, digest: str, content: bytes) -> _Answered:
        if method == "POST":
            return 202, {"Location": f"{root}blobs/uploads/1?_state=s"}, b""
        if method == "PUT":
            assert digest_of(content) == digest
            self.blobs[digest] = content
            return 201, {}, b""
        return (200, {}, self.blobs[digest]) if digest in self.blobs else _ABSENT

    def _tags(self, root: str, last: str) -> _Answered:
        tags = [tag for tag in sorted(self.tagged) if tag > last]
        page, more = tags[: self.page], tags[self.page :]
        link = f'<{root}tags/list?last={page[-1]}&n=2>; rel="next"' if more else ""
        content = json.dumps({"tags": page or None}).encode()
        return 200, {"Link": link} if link else {}, content

    def add_image(
        self, tag: str, layers: Sequence[bytes] = (b"layer",), **config: object
    ) -> Manifest:
        """Put an image there, as an engine's push does; no call. Its configuration has the tag."""

        def described(content: bytes, kind: str) -> dict[str, Any]:
            digest = digest_of(content)
            self.blobs[digest] = content
            return {"mediaType": kind, "digest": digest, "size": len(content)}

        docker = "application/vnd.docker."
        configuration = configuration_bytes(tag, layers, **config)
        document = {
            "schemaVersion": 2,
            "mediaType": DOCKER_MANIFEST,
            "config": described(configuration, f"{docker}container.image.v1+json"),
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
