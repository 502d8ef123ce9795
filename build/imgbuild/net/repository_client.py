"""Read and write manifests, blobs, tags and artifacts in one repository of a registry.

The engine pushes the content of images. Source of paths and statuses: OCI distribution
specification 1.1.
"""

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from imgbuild.core.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.core.files import parse_json, parse_strict_json
from imgbuild.core.parallel import in_parallel
from imgbuild.matrix.tags import TAG
from imgbuild.net import repository
from imgbuild.net.addresses import resolve_redirect, same_site
from imgbuild.net.authorization import Authorization, FindCredentials, docker_credentials
from imgbuild.net.http import (
    LARGEST_ANSWER,
    Answer,
    HttpClient,
    RetryPolicy,
    TransientError,
    raise_transient,
)
from imgbuild.net.sites import Sites

if TYPE_CHECKING:
    from imgbuild.core.settings import Settings

#: The default size limit of a blob that is read, in bytes.
LARGEST_BLOB = 1 << 28
#: The size limit of a JSON blob, in bytes. Parsed JSON takes far more memory than its bytes.
LARGEST_DOCUMENT = 1 << 22
#: Limits for the pages of tags and for the tags of a repository, far more than any has.
MOST_PAGES, MOST_TAGS = 10_000, 1_000_000
#: The number of parallel requests.
REQUESTS = 8
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
_ACCEPT = {
    "Accept": ", ".join((repository.OCI_MANIFEST, repository.DOCKER_MANIFEST, *repository.INDEXES))
}
#: docker-registry 2.8 returns this error while another client writes a blob of the manifest,
#: because it reads the blob's link file while it is still empty (seen with storage in a folder).
_WRITTEN_NOW = "DIGEST_INVALID"
_DISK_FULL = "no space left on device"
#: The most characters of a registry's text in a message.
_LONGEST_TEXT = 200
#: Advice for statuses that a retry would not change; `publish.upload` has the advice for engines.
_HINTS = {
    403: " The login, if there is one, has no permission. Use another: docker login {host}.",
    404: " The repository does not exist, and the registry does not create it.",
    405: " It does not accept writes (is it a mirror?), or its settings do not allow deletions.",
    413: " A proxy in front of the registry limits the size of requests.",
}

T = TypeVar("T")


class RegistryClient:
    """A client for one repository of a registry. It connects at the first request.

    Threads may share it.

    Every method raises `MachineError` if the registry cannot be reached or keeps failing, and
    `CheckFailedError` if it refuses (unauthorized, denied) or returns content with another digest.
    A ``reference`` is a tag or a digest.

    Logins are looked up when the registry asks for one. ``login_error`` creates the error for a
    missing or wrong login. Only registries on this machine may use http.
    """

    def __init__(
        self,
        name: repository.RepositoryName,
        client: HttpClient,
        find_credentials: FindCredentials = docker_credentials,
        login_error: Callable[[str], ImgbuildError] = CheckFailedError,
    ) -> None:
        #: ``HOST[:PORT]/REPOSITORY``, as in messages and in an engine's names of images.
        self.name = str(name)
        self._repository = name
        self._http = client
        self._authorization = Authorization(name, client, find_credentials, login_error)

    def close(self) -> None:
        """Close the connections; a thread that waits for a retry gives up."""
        self._http.close()

    @property
    def closed(self) -> bool:
        return self._http.closed

    def retry(self, what: str, work: Callable[[], T]) -> T:
        """Return the result of ``work``, and start it again after each temporary fault."""
        advice = partial(_advice, self._repository.host)
        return self._http.retry(f"{self.name}: {what}", work, advice)

    def ask(  # noqa: PLR0913, PLR0917 - the parts of a request
        self,
        what: str,
        method: str,
        path: str,
        expected: Container[int] = (200, 404),
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        most: int = LARGEST_ANSWER,
    ) -> Answer:
        """Return the answer to one request; ``path`` is below the repository, or a full address.

        TransientError: there was no answer, or the status is one that a retry may change, for
            example 429 or a server error.
        CheckFailedError: the status is not ``expected``.
        The error of ``login_error``: there is no login, or it is wrong.
        """
        root = f"{self._authorization.root()}/v2/{self._repository.path}"
        url = path if "://" in path else f"{root}{path}"
        sent = {**_ACCEPT, **(headers or {})}
        send = partial(self._http.ask, method, url, sent, content=content, limit=most)
        if same_site(url, root):
            answer = self._authorization.send(send, write=method not in {"GET", "HEAD"})
        else:
            answer = send()  # do not send this registry's login to another site
        text = error_text(answer)
        raise_transient(answer.status, answer.headers, text)
        if answer.status == 400 and _WRITTEN_NOW in text:
            raise TransientError(f"it answered 400{text}")
        if answer.status not in expected:
            hint = _HINTS.get(answer.status, "").format(host=self._repository.host)
            raise CheckFailedError(
                f"{self.name}: {what} was refused: it answered {answer.status}{text}.{hint}"
            )
        return answer

    def head(self, tag: str) -> str | None:
        """Return the digest of a tag's manifest; None if there is no such tag."""
        answer = self._read("HEAD", f"/manifests/{tag}", f"looking up {tag}")
        if answer is None:
            return None
        digest = answer.headers.get("Docker-Content-Digest", "")
        if repository.DIGEST.fullmatch(digest):
            return digest
        manifest = self.manifest(tag)  # the header is optional
        return manifest.digest if manifest else None

    def heads(self, tags: Sequence[str]) -> dict[str, str]:
        """Return the digest of each tag that exists."""
        digests = in_parallel(self.head, tags, REQUESTS)
        return {tag: digest for tag, digest in zip(tags, digests, strict=True) if digest}

    def manifest(self, reference: str) -> repository.Manifest | None:
        answer = self._read("GET", f"/manifests/{reference}", f"reading {reference}")
        if answer is None:
            return None
        told = answer.headers.get("Docker-Content-Digest") or repository.digest_of(answer.body)
        digest = reference if ":" in reference else told  # a tag has no colon
        self._check_digest(answer.body, digest, reference)
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        return repository.Manifest(digest, kind, answer.body)

    def put_manifest(self, reference: str, content: bytes, media_type: str) -> str:
        """Store a manifest and return its digest; an existing tag moves to it.

        The registry must already have the manifest's blobs.

        CheckFailedError: the registry reports another digest.
        """
        what = f"writing {reference}"
        path = f"/manifests/{reference}"
        kind = {"Content-Type": media_type}
        answer = self.retry(what, lambda: self.ask(what, "PUT", path, (200, 201), kind, content))
        digest = repository.digest_of(content)
        told = answer.headers.get("Docker-Content-Digest") or digest
        if told != digest:
            raise CheckFailedError(
                f"{self.name}: {reference} was written with digest {digest}, but the registry "
                f"reports {told}. The registry's storage, or a proxy in front of it, is damaged."
            )
        return digest

    def blob(self, digest: str, most: int | None = None) -> bytes:
        """Return a blob of at most ``most`` bytes, by default `LARGEST_BLOB`.

        CheckFailedError: the registry does not have the blob.
        MachineError: the blob is larger.
        """
        limit = most or LARGEST_BLOB
        answer = self._read("GET", f"/blobs/{digest}", f"reading {digest}", most=limit)
        if answer is None:
            raise CheckFailedError(
                f"{self.name} has no blob {digest}, but a manifest there refers to it."
            )
        self._check_digest(answer.body, digest, "a blob")
        return answer.body

    def put_blob(self, content: bytes) -> str:
        """Store a blob unless the registry has it; return its digest. Restart a failed upload."""
        digest = repository.digest_of(content)
        what = f"writing {digest}"

        def upload() -> None:
            if self.ask(what, "HEAD", f"/blobs/{digest}", range(600)).status == 200:
                return
            started = self.ask(what, "POST", "/blobs/uploads/", (202,), content=b"")
            address = resolve_redirect(started.url, started.headers.get("Location", ""))
            separator = "&" if "?" in address else "?"
            address += f"{separator}digest={quote(digest, safe='')}"
            kind = {"Content-Type": "application/octet-stream"}
            finished = self.ask(what, "PUT", address, (201, 404), kind, content)
            if finished.status == 404:  # the registry restarted in between
                raise TransientError(f"it lost the upload{error_text(finished)}")

        self.retry(what, upload)
        return digest

    def delete(self, digest: str) -> None:
        """Delete a manifest with all its tags; a manifest that does not exist is no error."""
        self._authorization.allow_deletion()
        what, path = f"deleting {digest}", f"/manifests/{digest}"
        self.retry(what, lambda: self.ask(what, "DELETE", path, (200, 202, 404)))

    def tags(self) -> tuple[str, ...]:
        """Return all tags, sorted; none if the repository does not exist yet.

        CheckFailedError: the registry repeats a page, or has too many pages or tags.
        """
        tags: set[str] = set()
        pages: set[str] = set()
        path = "/tags/list?n=1000"  # registries may return fewer
        while path:
            if path in pages or len(pages) == MOST_PAGES or len(tags) > MOST_TAGS:
                raise CheckFailedError(
                    f"{self.name}: the list of tags does not end: a page is repeated, or it has "
                    f"more than {MOST_PAGES:,} pages or {MOST_TAGS:,} tags. Is this a registry?"
                )
            pages.add(path)
            answer = self._read("GET", path, "listing its tags")
            if answer is None:
                break
            tags.update(self._read_tags(answer.body))
            following = _NEXT.search(answer.headers.get("Link", ""))
            path = resolve_redirect(answer.url, following[1]) if following else ""
        return tuple(sorted(tags))

    def _read_tags(self, body: bytes) -> list[str]:
        """Return the tags in one answer; CheckFailedError if it is not a list of tags."""
        try:
            tags: list[str] = parse_strict_json(body)["tags"] or []
            if all(TAG.fullmatch(tag) for tag in tags):
                return tags
        except (ValueError, KeyError, TypeError):
            pass
        raise CheckFailedError(
            f"{self.name}: the answer is not a list of tags. Is this a registry?"
        )

    def put_artifact(
        self,
        tag: str,
        kind: str,
        content: bytes,
        subject: repository.Manifest | None = None,
        annotations: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Store content of the media type ``kind`` under a tag; return the artifact's digest.

        An existing tag moves. The same arguments always give the same digest.

        MachineError: the registry reported success but does not have the artifact. A registry whose
            disk is full can do this, so the artifact is read back.
        """
        manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": repository.OCI_MANIFEST,
            "artifactType": kind,
            "config": repository.descriptor(repository.EMPTY_TYPE, repository.EMPTY),
            "layers": [repository.descriptor(kind, content)],
        }
        if annotations:
            manifest["annotations"] = dict(annotations)
        if subject:
            manifest["subject"] = repository.descriptor(subject.media_type, subject.content)
        self.put_blob(repository.EMPTY)
        self.put_blob(content)
        digest = self.put_manifest(tag, json.dumps(manifest).encode(), repository.OCI_MANIFEST)
        if self.manifest(tag) is None:  # reading it also checks its digest
            raise MachineError(
                f"{self.name}:{tag} was written, but the registry does not have it. Check the "
                "registry's log and disk, then run this again."
            )
        return digest

    def refer(self, subject: str, digest: str, kind: str) -> None:
        """Add an artifact to the list of its subject's referrers, if the registry keeps no list.

        The list is an index under a tag. Source: OCI distribution specification 1.1, "Referrers Tag
        Schema".
        """
        if self._read("GET", f"/referrers/{subject}", "listing the referrers of an image"):
            return
        artifact = self.manifest(digest)
        tag = subject.replace(":", "-")
        index_manifest = self.manifest(tag)
        entries = []
        if index_manifest:
            entries += index_manifest.document().get("manifests", ())
        if artifact is None or any(entry.get("digest") == digest for entry in entries):
            return
        entry = repository.descriptor(artifact.media_type, artifact.content)
        entries.append({**entry, "artifactType": kind})
        index_type = repository.INDEXES[0]
        index = {"schemaVersion": 2, "mediaType": index_type, "manifests": entries}
        self.put_manifest(tag, json.dumps(index).encode(), index_type)

    def read_artifact(self, tag: str, kind: str) -> tuple[Mapping[str, Any], str] | None:
        """Return the JSON object under a tag, and the digest of the image that it refers to.

        The digest is empty if it refers to none. Return None if there is no such tag.

        DamagedError: the artifact does not have the type ``kind``, or is not a JSON object.
        MachineError: the object has more than `LARGEST_DOCUMENT` bytes.
        """
        manifest = self.manifest(tag)
        if manifest is None:
            return None
        where = f"{self.name}:{tag}"
        try:
            document = manifest.document()
            (layer,) = document["layers"]
            digest = str(layer["digest"])
        except (CheckFailedError, KeyError, TypeError, ValueError) as error:
            raise repository.DamagedError(f"{where} is not an artifact of imgbuild.") from error
        if (own_kind := document.get("artifactType")) != kind:
            raise repository.DamagedError(f"{where} has the type {own_kind}, not {kind}.")
        content = self.blob(digest, LARGEST_DOCUMENT)
        return repository.json_object(content, where), manifest.subject

    def _read(self, method: str, path: str, what: str, most: int = LARGEST_ANSWER) -> Answer | None:
        """Return the answer if its status is 200; None if it is 404."""
        answer = self.retry(what, lambda: self.ask(what, method, path, most=most))
        return None if answer.status == 404 else answer

    def _check_digest(self, content: bytes, digest: str, what: str) -> None:
        actual = repository.digest_of(content)
        if actual != digest:
            raise CheckFailedError(
                f"{self.name}: {what}: the registry returned content with digest {actual} instead "
                f"of {digest}. Nothing was kept. The registry's storage, or a proxy in front of "
                "it, is damaged."
            )


def error_text(answer: Answer) -> str:
    """Return the registry's error as ``: CODE: message``; empty if there is none."""
    try:
        error = parse_json(answer.body)["errors"][0]
        words = [str(error.get(key) or "") for key in ("code", "message")]
        detail = error.get("detail")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return ""
    errno = detail.get("Err") if isinstance(detail, Mapping) else None
    if errno == 28 or _DISK_FULL in str(detail):  # ENOSPC in Go's PathError
        words.append(_DISK_FULL)
    text = " ".join(": ".join(filter(None, words)).split())[:_LONGEST_TEXT]
    return f": {text}" if text else ""


def _advice(host: str, error: TransientError) -> str:
    """Return advice for the error of the last try."""
    if _DISK_FULL in str(error).lower():
        return "The registry's disk is full. Free space, then run this again."
    if error.wait:
        return f"The registry asks clients to wait {ceil(error.wait)} s. Run this again after that."
    if "answered 429" in str(error):
        return "The registry limits the rate of requests. Wait, or use fewer --jobs."
    return (
        f"Check the name, and that this machine can reach {host}. If it is yours, check its log "
        "and disk, too. Then run this again."
    )


def connect(
    named: str | None, settings: "Settings", log: Callable[[str], None], option: str
) -> RegistryClient:
    """Return a client for the ``named`` repository, or for the settings'; it sends nothing yet.

    It uses the Docker client's logins, http only on this machine, and the CA bundle of
    `Sites.verify`. ``option`` is the option that names the repository.

    InputError: no repository is named, or the name is not that of a repository.
    """
    if named is None:
        if not settings.publishing.repository:
            raise InputError(
                f"No registry is set. Give {option} HOST[:PORT]/REPOSITORY, or set publishing: "
                "{repository: …} in imgbuild.local.yaml."
            )
        named, option = settings.publishing.repository, "publishing.repository"
    policy = RetryPolicy(settings.publishing.attempts, settings.publishing.first_wait)
    http = HttpClient(Sites(settings=settings).verify, policy=policy, log=log)
    return RegistryClient(repository.parse_repository(named, option), http)
