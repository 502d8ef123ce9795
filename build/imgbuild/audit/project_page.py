"""What the index offers of a project: PEP 691 (JSON) where it can, PEP 503 (HTML) elsewhere."""

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import canonicalize_name

from imgbuild.audit.client import Client, Page
from imgbuild.audit.failure import ReadError, StatusError
from imgbuild.audit.index_address import IndexAddress
from imgbuild.http import shown

_JSON = "application/vnd.pypi.simple.v1+json"
#: Preferences of PEP 691.
ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
_ABSENT = (404, 410)


@dataclass(frozen=True)
class OfferedFile:
    """A file of a project. ``size`` in bytes if the index tells; ``yanked`` is the reason."""

    name: str
    url: str
    sha256: str
    size: int | None = None
    yanked: str | None = None


@dataclass(frozen=True)
class Project:
    """A project's files by name; none if the index has no such project."""

    name: str
    files: dict[str, OfferedFile]

    def by_sha256(self, sha256: str) -> OfferedFile | None:
        """Return the file of this content, if it is still offered."""
        return next((file for file in self.files.values() if file.sha256 == sha256), None)


def read_project(client: Client, index: IndexAddress, name: str) -> Project:
    """Return what the index offers of a project.

    Raises:
        ReadError: the answer is no list of files.
        UnreachableError: the index does not answer.

    """
    canonical = canonicalize_name(name)
    try:
        page = client.get_page(index.project(canonical), ACCEPT)
    except StatusError as error:
        if error.status in _ABSENT:
            return Project(canonical, {})
        raise
    return Project(canonical, {file.name: file for file in parse_page(page)})


def parse_page(page: Page) -> list[OfferedFile]:
    """Return the files that a project's page lists.

    Raises:
        ReadError: it is neither of the two forms.

    """
    try:
        text = page.content.decode("utf-8")
        if "json" in page.content_type:
            entries = json.loads(text)["files"]
            return [_from_json(page.url, e) for e in entries if e["hashes"].get("sha256")]
        files = _from_html(page.url, text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReadError(f"{_what(page)} is no list of files (PEP 691).") from error
    if not files:
        raise ReadError(f"{_what(page)} lists no file (PEP 503). Is it the index at all?")
    return files


def _what(page: Page) -> str:
    return f"{shown(page.url)} ({page.content_type or 'without a content type'})"


def _from_json(base: str, entry: dict[str, Any]) -> OfferedFile:
    yanked, size = entry.get("yanked"), entry.get("size")
    return OfferedFile(
        name=str(entry["filename"]),
        url=urljoin(base, str(entry["url"])),
        sha256=str(entry["hashes"]["sha256"]),
        size=size if isinstance(size, int) else None,
        yanked=(yanked if isinstance(yanked, str) else "no reason given") if yanked else None,
    )


def _from_html(base: str, text: str) -> list[OfferedFile]:
    links = _Links()
    links.feed(text)
    files = []
    for attributes in links.found:
        url, fragment = urldefrag(urljoin(base, attributes.get("href") or ""))
        algorithm, _, digest = fragment.partition("=")
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        reason = attributes.get("data-yanked", False)
        yanked = None if reason is False else str(reason or "no reason given")
        if algorithm == "sha256":
            files.append(OfferedFile(name, url, digest, None, yanked))
    return files


class _Links(HTMLParser):
    """Collects the attributes of every link."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a link."""
        if tag == "a":
            self.found.append(dict(attrs))
