"""Read and write manifests, blobs, tags and artifacts of one repository of a registry.

Source of paths and statuses: OCI distribution specification 1.1. The content of images is pushed
by the engine.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.http import (
    LARGEST_ANSWER,
    Answer,
    GaveUpError,
    HttpClient,
    RetryPolicy,
    TransientError,
    is_loopback,
    moved,
    raise_transient,
    same_site,
)
from imgbuild.registry.auth import Authorization, FindCredentials, docker_credentials
from imgbuild.registry.repository import (
    DOCKER_MANIFEST,
    EMPTY,
    EMPTY_TYPE,
    INDEXES,
    OCI_MANIFEST,
    Artifact,
    DamagedError,
    Manifest,
    RepositoryName,
    descriptor,
    digest_of,
    is_digest,
    parse_repository,
)
from imgbuild.settings import Sites

if TYPE_CHECKING:
    from imgbuild.settings import Settings

#: The most bytes that are read of a blob.
LARGEST_BLOB = 1 << 28
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
_ACCEPT = {"Accept": ", ".join((OCI_MANIFEST, DOCKER_MANIFEST, *INDEXES))}
#: What docker-registry 2.8 answers while another client writes a blob of the manifest: it reads the
#: file that refers to the blob while that is empty (seen with its storage in a folder).
_WRITTEN_NOW = "DIGEST_INVALID"
_DISK_FULL = "no space left on device"
#: The longest text of a registry that is repeated.
_LONGEST_TEXT = 200
#: What to do about a status that another try would not change.
_HINTS = {
    403: " The login there is, if any, does not allow it: docker login {host}, as someone who may.",
    404: " The repository does not exist, and the registry does not create it.",
    405: " It accepts no writes: it may be a mirror.",
    413: " A proxy before it limits the size of requests.",
}

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
        self._authorization = Authorization(name, http, find_credentials)
        self._scheme = "" if is_loopback(name.host) else "https"
        self._scheme_lock = threading.Lock()

    @property
    def name(self) -> str:
        """``HOST[:PORT]/REPOSITORY``, for messages and as an engine names it."""
        return str(self.repository)

    def close(self) -> None:
        """Close the connections, and end every wait for another try."""
        self._http.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._http.closed

    def retry(self, what: str, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, tried again from its start after a transient fault."""
        try:
            return self._http.retry(f"{self.name}: {what}", work)
        except GaveUpError as error:
            raise _gave_up(self.repository.host, error) from None

    def head(self, tag: str) -> str | None:
        """Return the digest of a manifest, or ``None`` if there is none."""
        answer = self._read("HEAD", f"/manifests/{tag}", f"asking for {tag}")
        if answer is None:
            return None
        if found := answer.headers.get("Docker-Content-Digest"):
            return found
        manifest = self.manifest(tag)  # the header is optional
        return manifest.digest if manifest else None

    def manifest(self, reference: str) -> Manifest | None:
        """Return a manifest, or ``None`` if there is none."""
        answer = self._read("GET", f"/manifests/{reference}", f"reading {reference}")
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
            answer = self._write("PUT", f"/manifests/{reference}", content, media_type)
            if answer.status == 400 and _WRITTEN_NOW in _error_text(answer):
                raise TransientError(f"it answered 400{_error_text(answer)}")
            return self._require(answer, what, 201, 200)

        answer = self.retry(what, put)
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
        self._check_digest(answer.body, digest, "a blob")
        return answer.body

    def put_blob(self, content: bytes) -> str:
        """Store a blob, unless it is there; return its digest. A failed upload starts again."""
        digest = digest_of(content)
        what = f"writing {digest}"

        def upload() -> None:
            if self._ask("HEAD", f"/blobs/{digest}").status == 200:
                return
            begun = self._require(self._write("POST", "/blobs/uploads/", b""), what, 202)
            address = moved(begun.url, begun.headers.get("Location", ""))
            address += f"{'&' if '?' in address else '?'}digest={quote(digest, safe='')}"
            ended = self._write("PUT", address, content)
            if ended.status == 404:  # the registry was restarted in between
                raise TransientError(f"it lost the upload{_error_text(ended)}")
            self._require(ended, what, 201)

        self.retry(what, upload)
        return digest

    def tags(self) -> tuple[str, ...]:
        """Return every tag, sorted; none of a repository that does not exist yet."""
        found: set[str] = set()
        path = "/tags/list?n=1000"  # registries may return fewer
        while path:
            answer = self._read("GET", path, "listing its tags")
            if answer is None:
                break
            try:
                found.update(str(tag) for tag in json.loads(answer.body)["tags"] or ())
            except (ValueError, KeyError, TypeError) as error:
                raise CheckFailedError(
                    f"{self.name}: its answer is not a list of tags. Is it a registry?"
                ) from error
            following = _NEXT.search(answer.headers.get("Link", ""))
            path = moved(answer.url, following[1]) if following else ""
        return tuple(sorted(found))

    def put_artifact(
        self, tag: str, kind: str, content: bytes, subject: Manifest | None = None
    ) -> str:
        """Store a file of this media type under a tag; return the digest. A tag moves.

        The same content always has the same digest. It is read again: a registry whose disk is full
        may say that it wrote what it then does not have, which is a `MachineError`.
        """
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
        return Artifact(self.blob(digest), about, where)

    def _read(self, method: str, path: str, what: str, most: int = LARGEST_ANSWER) -> Answer | None:
        """Return the answer 200 to a request, or None for 404."""
        answer = self.retry(what, lambda: self._ask(method, path, most=most))
        return None if answer.status == 404 else self._require(answer, what, 200)

    def _write(
        self, method: str, path: str, content: bytes, kind: str = "application/octet-stream"
    ) -> Answer:
        return self._ask(method, path, {"Content-Type": kind}, content)

    def _ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        most: int = LARGEST_ANSWER,
    ) -> Answer:
        """Return the answer to one request; ``path`` is below the repository, or an address.

        Raises:
            TransientError: there was no answer, or 429, or a server error.
            LoginError: there is no login, or it is wrong.

        """
        root = f"{self._root()}/v2/{self.repository.path}"
        url = path if "://" in path else f"{root}{path}"
        sent = {**_ACCEPT, **(headers or {})}

        def send(header: str) -> Answer:
            return self._http.ask(
                method, url, sent, content=content, authorization=header, limit=most
            )

        if same_site(url, root):
            answer = self._authorization.authorized(send, write=content is not None)
        else:
            answer = send("")  # another site gets no login of this one
        raise_transient(answer.status, answer.headers, _error_text(answer))
        return answer

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

    def _check_digest(self, content: bytes, digest: str, what: str) -> None:
        found = digest_of(content)
        if found != digest:
            raise CheckFailedError(
                f"{self.name}: {what}: the registry gave content with digest {found} for {digest}. "
                "Nothing was kept. Its storage, or a proxy before it, is damaged."
            )

    def _require(self, answer: Answer, what: str, *expected: int) -> Answer:
        if answer.status not in expected:
            hint = _HINTS.get(answer.status, "").format(host=self.repository.host)
            raise CheckFailedError(
                f"{self.name}: {what} was refused: it answered {answer.status}"
                f"{_error_text(answer)}.{hint}"
            )
        return answer


def connect(
    repository: str | None, settings: "Settings", log: Callable[[str], None], option: str
) -> RegistryClient:
    """Return a client of a repository, by default the settings'; no request is sent yet.

    Logins are the Docker client's. http is spoken on this machine only. TLS is verified with the
    settings' CA bundle, else the system's. ``option`` is where the repository was named.

    Raises:
        InputError: none is named, or it is not the name of a repository.

    """
    if repository is None:
        if not settings.publishing.repository:
            raise InputError(
                f"Which registry? Give {option} HOST[:PORT]/REPOSITORY, or set publishing: "
                "{repository: …} in imgbuild.local.yaml."
            )
        repository, option = settings.publishing.repository, "publishing.repository"
    policy = RetryPolicy(settings.publishing.attempts, settings.publishing.first_wait)
    http = HttpClient(Sites(settings=settings).verify, policy=policy, log=log)
    return RegistryClient(parse_repository(repository, option), http)


def _error_text(answer: Answer) -> str:
    """Return the registry's own words, as ``: CODE: message``; empty if there are none."""
    try:
        error = json.loads(answer.body)["errors"][0]
        words = [str(error.get(key) or "") for key in ("code", "message")]
        detail = error.get("detail")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return ""
    errno = detail.get("Err") if isinstance(detail, Mapping) else None
    if errno == 28 or _DISK_FULL in str(detail):  # ENOSPC, of Go's PathError
        words.append(_DISK_FULL)
    text = " ".join(": ".join(filter(None, words)).split())[:_LONGEST_TEXT]
    return f": {text}" if text else ""


def _gave_up(host: str, error: GaveUpError) -> MachineError:
    """Return the error after the last try, with what to do."""
    if _DISK_FULL in error.reason.lower():
        hint = "Its disk is full: free space, then run this again."
    elif error.wait:
        hint = f"It asks clients to wait {ceil(error.wait)} s: run this again after that."
    elif "answered 429" in error.reason:
        hint = "It limits the rate of requests: wait, or use fewer --jobs."
    else:
        hint = (
            f"Check that {host} can be reached and is well (its log, its disk), then run this "
            "again."
        )
    return MachineError(f"{error} {hint}")
