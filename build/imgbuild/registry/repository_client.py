"""Read and write manifests, blobs, tags and artifacts of one repository of a registry.

Source of paths and statuses: OCI distribution specification 1.1. The content of images is pushed
by the engine.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.http import (
    LARGEST_ANSWER,
    Answer,
    GaveUpError,
    HttpClient,
    RetryPolicy,
    TransientError,
    moved,
    raise_transient,
    same_site,
)
from imgbuild.registry.auth import (
    Authorization,
    FindCredentials,
    TokenRequest,
    docker_credentials,
)
from imgbuild.registry.manifest import (
    ACCEPT,
    EMPTY,
    EMPTY_TYPE,
    OCI_MANIFEST,
    Artifact,
    DamagedError,
    Manifest,
    descriptor,
    digest_of,
    is_digest,
)
from imgbuild.registry.refusal import error_text, gave_up, refused
from imgbuild.registry.repository import RepositoryName, parse_repository
from imgbuild.sites import Sites

if TYPE_CHECKING:
    from imgbuild.settings import Settings

#: The most bytes that are read of a blob.
LARGEST_BLOB = 1 << 28
#: Tags requested at once; registries may return fewer.
_PAGE = 1000
_MOST_PAGES = 1000
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
#: What docker-registry 2.8 answers while another client writes a blob of the manifest: it reads the
#: file that refers to the blob while that is empty (seen with its storage in a folder).
_WRITTEN_NOW = "DIGEST_INVALID"

T = TypeVar("T")


class RegistryClient:
    """One repository of one registry; it connects at the first request. Threads may share it.

    Every method raises `MachineError` if the registry cannot be reached or keeps failing, and
    `CheckFailedError` if it refuses (unauthorized, denied) or returns content with another digest.
    A ``reference`` is a tag or a digest.
    """

    def __init__(
        self,
        name: RepositoryName,
        http: HttpClient,
        find_credentials: FindCredentials = docker_credentials,
    ) -> None:
        self.repository = name
        self._http = http
        self._authorization = Authorization(name, self._request_token, find_credentials)
        self._scheme = "" if name.local else "https"
        self._scheme_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RegistryClient({self.name})"

    @property
    def name(self) -> str:
        """``HOST[:PORT]/REPOSITORY``, for messages and as an engine names it."""
        return str(self.repository)

    def close(self) -> None:
        """Close the connections, and end every wait for another try."""
        self._http.close()

    def head(self, reference: str) -> str | None:
        """Return the digest of a manifest, or ``None`` if there is none."""
        what = f"asking for {reference}"
        answer = self._read("HEAD", _manifest_path(reference), what)
        if answer is None:
            return None
        found = answer.headers.get("Docker-Content-Digest", "")
        if not found:  # the header is optional
            manifest = self.manifest(reference)
            return manifest.digest if manifest else None
        if is_digest(reference) and found != reference:
            raise CheckFailedError(f"{self.name}: the registry has {found} for {reference}.")
        return found

    def manifest(self, reference: str) -> Manifest | None:
        """Return a manifest, or ``None`` if there is none."""
        answer = self._read("GET", _manifest_path(reference), f"reading {reference}")
        if answer is None:
            return None
        told = answer.headers.get("Docker-Content-Digest") or digest_of(answer.body)
        digest = reference if is_digest(reference) else told
        self._check_digest(answer.body, digest, reference)
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        return Manifest(digest, kind, answer.body)

    def put_manifest(self, reference: str, content: bytes, media_type: str) -> str:
        """Store a manifest whose blobs are all there; return its digest. A tag moves."""
        what = f"writing {reference}"

        def put() -> Answer:
            kind = {"Content-Type": media_type}
            path = _manifest_path(reference)
            answer = self._ask("PUT", path, headers=kind, content=content, write=True)
            if answer.status == 400 and _WRITTEN_NOW in error_text(answer):
                raise TransientError(f"it answered 400{error_text(answer)}")
            return answer

        answer = self._require(self._persistently(what, put), what, 201, 200)
        digest = digest_of(content)
        told = answer.headers.get("Docker-Content-Digest") or digest
        if told != digest:
            raise CheckFailedError(
                f"{self.name}: {reference} was written with digest {digest}, and the registry says "
                f"{told}: its storage, or a proxy before it, is damaged."
            )
        return digest

    def blob(self, digest: str) -> bytes:
        """Return a blob of at most `LARGEST_BLOB` bytes; `CheckFailedError` if there is none."""
        answer = self._read("GET", f"/blobs/{digest}", f"reading {digest}", most=LARGEST_BLOB)
        if answer is None:
            raise CheckFailedError(
                f"{self.name} has no blob {digest}, which a manifest there refers to."
            )
        return self._check_digest(answer.body, digest, "a blob")

    def put_blob(self, content: bytes) -> str:
        """Store a blob, unless it is there; return its digest. A failed upload starts again."""
        digest = digest_of(content)
        what = f"writing {digest}"

        def upload() -> Answer | None:
            if self._ask("HEAD", f"/blobs/{digest}").status == 200:
                return None
            begun = self._ask("POST", "/blobs/uploads/", content=b"", write=True)
            self._require(begun, what, 202)
            if "Location" not in begun.headers:
                raise CheckFailedError(f"{self.name} does not say where an upload goes.")
            kind = {"Content-Type": "application/octet-stream"}
            address = _upload_address(begun, digest)
            ended = self._ask("PUT", address, headers=kind, content=content, write=True)
            if ended.status == 404:  # the registry was restarted in between
                raise TransientError(f"it lost the upload{error_text(ended)}")
            return ended

        answer = self._persistently(what, upload)
        if answer is not None:
            self._require(answer, what, 201)
        return digest

    def tags(self) -> tuple[str, ...]:
        """Return every tag, sorted; none of a repository that does not exist yet."""
        found: set[str] = set()
        path = f"/tags/list?n={_PAGE}"
        for _ in range(_MOST_PAGES):
            answer = self._read("GET", path, "listing its tags")
            if answer is None:
                break
            found.update(self._parse_tags(answer))
            following = _NEXT.search(answer.headers.get("Link", ""))
            if following is None:
                break
            path = moved(answer.url, following[1])
            if not same_site(path, answer.url):
                raise CheckFailedError(f"{self.name}: its list of tags goes on at another host.")
        else:
            raise CheckFailedError(f"{self.name}: its list of tags has no end.")
        return tuple(sorted(found))

    def put_artifact(
        self, tag: str, kind: str, content: bytes, subject: Manifest | None = None
    ) -> str:
        """Store a file of this media type under a tag; return the digest. A tag moves.

        The same content always has the same digest. It is read again: a registry whose
        disk is full may say that it wrote what it then does not have.

        Raises:
            CheckFailedError: it is larger than what is read; nothing is written.
            MachineError: it is not there afterwards.

        """
        if len(content) > LARGEST_BLOB:
            raise CheckFailedError(
                f"{self.name}:{tag} would be {len(content) >> 20} MiB, and imgbuild reads "
                f"{LARGEST_BLOB >> 20} MiB at most: it is not written."
            )
        manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": kind,
            "config": descriptor(EMPTY_TYPE, EMPTY),
            "layers": [descriptor(kind, content)],
        }
        if subject:
            manifest["subject"] = descriptor(subject.media_type, subject.content)
        self.put_blob(EMPTY)
        self.put_blob(content)
        digest = self.put_manifest(tag, json.dumps(manifest).encode(), OCI_MANIFEST)
        if self.manifest(tag) is None:  # its digest is checked as it is read
            raise MachineError(
                f"{self.name}:{tag} was written and is not there. Check that the registry is well "
                "(its log, its disk), then run this again."
            )
        return digest

    def read_artifact(self, tag: str, kind: str) -> Artifact | None:
        """Return the file of this media type under a tag, or ``None`` if there is no such tag.

        Raises:
            DamagedError: what is there is something else.

        """
        manifest = self.manifest(tag)
        if manifest is None:
            return None
        where = f"{self.name}:{tag}"
        try:
            document = manifest.document()
            found, (layer,) = document.get("artifactType"), document["layers"]
            digest, subject = str(layer["digest"]), document.get("subject")
            about = str(subject["digest"]) if subject else None
        except (CheckFailedError, KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"{where} is not an artifact of imgbuild.") from error
        if found != kind:
            raise DamagedError(f"{where} is of the type {found}, not {kind}.")
        return Artifact(self.blob(digest), manifest.digest, about, where)

    def _read(self, method: str, path: str, what: str, most: int = LARGEST_ANSWER) -> Answer | None:
        """Return the answer 200 to a request, or None for 404."""
        answer = self._persistently(what, lambda: self._ask(method, path, most=most))
        return None if answer.status == 404 else self._require(answer, what, 200)

    def _persistently(self, what: str, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, tried again from its start after a transient fault."""
        try:
            return self._http.retry(f"{self.name}: {what}", work)
        except GaveUpError as error:
            raise gave_up(self.repository, error) from None

    def _ask(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        write: bool = False,
        most: int = LARGEST_ANSWER,
    ) -> Answer:
        """Return the answer to one request; ``path`` is below the repository, or an address.

        A refusal (401) is answered with one new login or token.

        Raises:
            TransientError: there was no answer, or 429, or a server error.
            CheckFailedError: there is no login, or it is wrong.

        """
        root = f"{self._root()}/v2/{self.repository.path}"
        url = path if "://" in path else f"{root}{path}"
        sent = {**ACCEPT, **(headers or {})}
        send = partial(self._http.ask, method, url, sent, content=content, limit=most)
        if not same_site(url, root):  # another site gets no login of this one
            return _checked(send())
        header = self._authorization.header(write=write)
        answer = send(authorization=header)
        if answer.status == 401:
            challenge = answer.headers.get("WWW-Authenticate", "")
            header = self._authorization.renew(challenge, header, write=write)
            answer = send(authorization=header)
            if answer.status == 401:
                raise self._authorization.error()
        return _checked(answer)

    def _request_token(self, token: TokenRequest) -> tuple[int, bytes]:
        if token.form is None:
            answer = self._http.ask("GET", token.url, authorization=token.authorization)
        else:
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._http.ask("POST", token.url, kind, content=token.form, secret=True)
        _checked(answer)
        return answer.status, answer.body

    def _root(self) -> str:
        with self._scheme_lock:
            if not self._scheme:
                self._scheme = self._find_scheme()
            return f"{self._scheme}://{self.repository.registry}"

    def _find_scheme(self) -> str:
        """Return the scheme of a registry on this machine: https is tried first, as engines do."""
        host = self.repository.registry
        try:
            self._http.ask("GET", f"https://{host}/v2/")
        except TransientError as error:
            if "Connection refused" in str(error):
                raise
            # 400 is what servers answer that want TLS; this request is right in HTTP.
            if self._http.ask("GET", f"http://{host}/v2/").status == 400:
                raise
            return "http"
        return "https"

    def _parse_tags(self, answer: Answer) -> list[str]:
        try:
            return [str(tag) for tag in json.loads(answer.body)["tags"] or ()]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckFailedError(
                f"{self.name}: its answer is not a list of tags. Is it a registry?"
            ) from error

    def _check_digest(self, content: bytes, digest: str, what: str) -> bytes:
        found = digest_of(content)
        if found != digest:
            raise CheckFailedError(
                f"{self.name}: {what}: the registry gave content with digest {found} for {digest}. "
                "Nothing was kept. Its storage, or a proxy before it, is damaged."
            )
        return content

    def _require(self, answer: Answer, what: str, *expected: int) -> Answer:
        if answer.status not in expected:
            raise refused(self.repository, what, answer)
        return answer


def connect(
    repository: str,
    settings: "Settings",
    log: Callable[[str], None],
    *,
    option: str = "publishing.repository",
) -> RegistryClient:
    """Return a client of ``HOST[:PORT]/REPOSITORY``; no request is sent yet.

    Logins are the Docker client's. http is spoken on this machine only. TLS is verified with the
    settings' CA bundle, else the system's. ``option`` is where the repository was named, for the
    error.

    Raises:
        InputError: it is not the name of a repository.

    """
    name = parse_repository(repository, option)
    sites = Sites(ca_bundle=Path(settings.ca_bundle) if settings.ca_bundle else None)
    policy = RetryPolicy(settings.publishing.attempts, settings.publishing.first_wait)
    return RegistryClient(name, HttpClient(sites.verify, policy=policy, log=log))


def _checked(answer: Answer) -> Answer:
    """Return the answer, unless another try may change it: 429, and the server's own faults."""
    raise_transient(answer.status, answer.headers, error_text(answer))
    return answer


def _manifest_path(reference: str) -> str:
    return f"/manifests/{quote(reference, safe=':')}"


def _upload_address(begun: Answer, digest: str) -> str:
    """Return where the content goes: ``Location``, relative or not, with the digest added."""
    address = moved(begun.url, begun.headers["Location"])
    joint = "&" if "?" in address else "?"
    return f"{address}{joint}digest={quote(digest, safe='')}"
