"""The real registry. Source of paths and statuses: OCI distribution specification 1.1."""

import json
import re
from urllib.parse import quote

from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.registry.asking import Asking
from imgbuild.registry.digest import checked, digest_of, is_digest
from imgbuild.registry.exchange import Answer, moved, same_site
from imgbuild.registry.faults import refused, said
from imgbuild.registry.file_content import FileContent
from imgbuild.registry.media_types import ACCEPT
from imgbuild.registry.patience import PassingError
from imgbuild.registry.protocol import LARGEST_BLOB, Manifest

#: Tags asked for at once; registries may give fewer.
_PAGE = 1000
_MOST_PAGES = 1000
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
#: What docker-registry 2.8 answers while another client writes a blob of the manifest: it reads the
#: file that refers to the blob while that is empty (seen with its storage in a folder).
_WRITTEN_NOW = "DIGEST_INVALID"
_BYTES = {"Content-Type": "application/octet-stream"}


class HttpRegistry:
    """A `Registry` behind HTTP. It connects at the first call, not before."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def __repr__(self) -> str:
        return f"HttpRegistry({self.name})"

    @property
    def name(self) -> str:
        """The repository."""
        return str(self._asking.name)

    def head(self, reference: str) -> str | None:
        """Return the digest of a manifest."""

        def ask() -> str | None:
            answer = self._asking.ask("HEAD", _manifest(reference), headers=ACCEPT)
            if answer.status == 404:
                return None
            self._require(answer, f"asking for {reference}", 200)
            return answer.headers.get("Docker-Content-Digest", "")

        found = self._asking.persistently(f"asking for {reference}", ask)
        if found == "":  # the header is no duty: then the content tells
            manifest = self.manifest(reference)
            return manifest.digest if manifest else None
        if found and is_digest(reference) and found != reference:
            raise CheckFailedError(f"{self.name}: the registry has {found} for {reference}.")
        return found

    def manifest(self, reference: str) -> Manifest | None:
        """Return a manifest."""
        what = f"reading {reference}"
        answer = self._asking.persistently(
            what, lambda: self._asking.ask("GET", _manifest(reference), headers=ACCEPT)
        )
        if answer.status == 404:
            return None
        self._require(answer, what, 200)
        told = answer.headers.get("Docker-Content-Digest") or digest_of(answer.body)
        wanted = reference if is_digest(reference) else told
        checked(answer.body, wanted, f"{self.name}: {reference}")
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        return Manifest(wanted, kind, answer.body)

    def put_manifest(self, reference: str, content: bytes, media_type: str) -> str:
        """Store a manifest. Storing the same again changes nothing, so it can be repeated."""
        what = f"writing {reference}"

        def put() -> Answer:
            kind = {"Content-Type": media_type}
            answer = self._asking.ask(
                "PUT", _manifest(reference), headers=kind, content=content, write=True
            )
            if answer.status == 400 and _WRITTEN_NOW in said(answer):
                raise PassingError(f"it answered 400{said(answer)}")
            return answer

        answer = self._asking.persistently(what, put)
        self._require(answer, what, 201, 200)
        digest = digest_of(content)
        told = answer.headers.get("Docker-Content-Digest") or digest
        if told != digest:
            raise CheckFailedError(
                f"{self.name}: {reference} was written with digest {digest}, and the registry says "
                f"{told}: its storage, or a proxy before it, is damaged."
            )
        return digest

    def blob(self, digest: str) -> bytes:
        """Return a small blob."""
        what = f"reading {digest}"
        answer = self._asking.persistently(
            what, lambda: self._asking.ask("GET", f"/blobs/{digest}", most=LARGEST_BLOB)
        )
        if answer.status == 404:
            raise CheckFailedError(
                f"{self.name} has no blob {digest}, which a manifest there refers to."
            )
        self._require(answer, what, 200)
        return checked(answer.body, digest, self.name)

    def put_blob(self, content: bytes) -> str:
        """Store a small blob: an upload that failed is begun anew."""
        digest = digest_of(content)
        self._upload(digest, content)
        return digest

    def has_blob(self, digest: str) -> bool:
        """Return whether a blob is there."""
        return self._asking.persistently(f"asking for {digest}", lambda: self._there(digest))

    def put_file(self, content: FileContent) -> None:
        """Store a blob, in one piece: an upload that failed is begun anew."""
        self._upload(content.digest, content)

    def _there(self, digest: str) -> bool:
        return self._asking.ask("HEAD", f"/blobs/{digest}").status == 200

    def _upload(self, digest: str, content: bytes | FileContent) -> None:
        what = f"writing {digest}"

        def upload() -> Answer | None:
            if self._there(digest):
                return None
            begun = self._asking.ask("POST", "/blobs/uploads/", content=b"", write=True)
            self._require(begun, what, 202)
            if "Location" not in begun.headers:
                raise CheckFailedError(f"{self.name} does not say where an upload goes.")
            address = _upload_address(begun, digest)
            ended = self._asking.ask("PUT", address, headers=_BYTES, content=content, write=True)
            if ended.status == 404:  # the registry was restarted in between
                raise PassingError(f"it lost the upload{said(ended)}")
            return ended

        answer = self._asking.persistently(what, upload)
        if answer is not None:
            self._require(answer, what, 201)

    def tags(self) -> tuple[str, ...]:
        """Return every tag."""
        found: set[str] = set()
        path = f"/tags/list?n={_PAGE}"
        for _ in range(_MOST_PAGES):
            answer = self._page(path)
            if answer is None:
                break
            found.update(self._tags(answer))
            following = _NEXT.search(answer.headers.get("Link", ""))
            if following is None:
                break
            path = self._following(answer, following[1])
        else:
            raise CheckFailedError(f"{self.name}: its list of tags has no end.")
        return tuple(sorted(found))

    def close(self) -> None:
        """Close the connections."""
        self._asking.close()

    def _page(self, path: str) -> Answer | None:
        what = "listing its tags"
        answer = self._asking.persistently(what, lambda: self._asking.ask("GET", path))
        if answer.status == 404:  # nothing was ever pushed
            return None
        self._require(answer, what, 200)
        return answer

    def _tags(self, answer: Answer) -> list[str]:
        try:
            return [str(tag) for tag in json.loads(answer.body)["tags"] or ()]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckFailedError(
                f"{self.name}: what it gives as its list of tags is none. Is it a registry?"
            ) from error

    def _following(self, answer: Answer, link: str) -> str:
        address = moved(answer.url, link)
        if not same_site(address, answer.url):
            raise CheckFailedError(f"{self.name}: its list of tags goes on at another host.")
        return address

    def _require(self, answer: Answer, what: str, *expected: int) -> None:
        if answer.status not in expected:
            raise self._refusal(answer, what)

    def _refusal(self, answer: Answer, what: str) -> ImgbuildError:
        return refused(self._asking.name, what, answer)


def _manifest(reference: str) -> str:
    return f"/manifests/{quote(reference, safe=':')}"


def _upload_address(begun: Answer, digest: str) -> str:
    """Return where the content goes: ``Location``, relative or not, with the digest added."""
    address = moved(begun.url, begun.headers["Location"])
    joint = "&" if "?" in address else "?"
    return f"{address}{joint}digest={quote(digest, safe='')}"
