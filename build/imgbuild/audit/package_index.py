"""Read projects' pages of the Python package index (PEP 503), and compare pins with them."""

import configparser
import importlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import canonicalize_name

from imgbuild.audit.compare import Contradiction
from imgbuild.audit.facts import SdistNeed
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.errors import InputError, MachineError
from imgbuild.http import HttpClient, shown
from imgbuild.settings import Settings

#: The form that every index has.
ACCEPT = "application/vnd.pypi.simple.v1+html, text/html;q=0.2"
#: The largest page of the index seen is 1.2 MB (numpy).
_LARGEST = 64 << 20
_ABSENT = (404, 410)


@dataclass(frozen=True)
class IndexAddress:
    """An index's root in the form of PEP 503, and what names it."""

    url: str
    named_by: str


@dataclass(frozen=True)
class OfferedFile:
    """A file of a project. ``yanked`` is the reason if it was withdrawn."""

    name: str
    url: str
    sha256: str
    yanked: str | None = None


@dataclass(frozen=True)
class IndexProject:
    """A project's files by name; none if the index has no such project."""

    name: str
    files: dict[str, OfferedFile]


def find_index(settings: Settings, environment: Mapping[str, str] = os.environ) -> IndexAddress:
    """Return the index that packages are taken from: a mirror, else as uv and pip are configured.

    Raises:
        InputError: the one that is named is no http address; or none is, and there is no pip, whose
            default it would be.

    """
    mirror = settings.mirrors.get("python-index")
    mirrored = [(mirror.url, "the mirror python-index")] if mirror else []
    url, named_by = next(iter([*mirrored, *_named(environment)]), ("", ""))
    if not url.startswith(("http://", "https://")):
        found = f"{named_by} names {shown(url)!r}" if url else "No index is named"
        raise InputError(
            f"{found}; audit needs an index at http:// or https://. Set UV_DEFAULT_INDEX."
        )
    return IndexAddress(url.rstrip("/"), named_by)


def _named(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if environment.get(name):
            yield environment[name], name
    home = Path(environment.get("HOME") or "/")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    own = environment.get("UV_CONFIG_FILE")
    uv_files = [Path(own)] if own else [config / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]
    for path in [] if environment.get("UV_NO_CONFIG") else uv_files:
        yield from ((url, str(path)) for url in _in_uv_file(path))
    if environment.get("PIP_INDEX_URL"):
        yield environment["PIP_INDEX_URL"], "PIP_INDEX_URL"
    pip_files = [config / "pip" / "pip.conf", home / ".pip" / "pip.conf", Path("/etc/pip.conf")]
    parser = configparser.RawConfigParser()
    for path in (Path(environment.get("PIP_CONFIG_FILE") or "/dev/null"), *pip_files):
        if parser.read(path) and parser.has_option("global", "index-url"):
            yield parser.get("global", "index-url"), str(path)
    try:
        default: str = importlib.import_module("pip._internal.models.index").PyPI.simple_url
    except (ImportError, AttributeError):
        return
    yield default, "pip's default"


def _in_uv_file(path: Path) -> list[str]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    listed = [one.get("url") for one in values.get("index", []) if one.get("default")]
    found = [*listed, values.get("index-url"), values.get("pip", {}).get("index-url")]
    return [url for url in found if isinstance(url, str) and url]


def read_project(client: HttpClient, index: IndexAddress, name: str) -> IndexProject:
    """Return what the index offers of a project.

    Raises:
        MachineError: the index does not answer, or with something that is no list of files.

    """
    canonical = canonicalize_name(name)
    answer = client.get(f"{index.url}/{canonical}/", {"Accept": ACCEPT}, limit=_LARGEST)
    if answer.status in _ABSENT:
        return IndexProject(canonical, {})
    if answer.status != 200:
        raise MachineError(f"{shown(answer.url)}: the server says {answer.status}.")
    files = _files(answer.url, answer.body.decode("utf-8", "replace"))
    if not files:
        kind = answer.headers.get("Content-Type", "without a content type")
        raise MachineError(
            f"{shown(answer.url)} ({kind}) lists no file (PEP 503). Is it the index at all?"
        )
    return IndexProject(canonical, {file.name: file for file in files})


def _files(base: str, page: str) -> list[OfferedFile]:
    links: list[dict[str, str | None]] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend([dict(attrs)] if tag == "a" else [])

    Links().feed(page)
    files = []
    for link in links:
        url, fragment = urldefrag(urljoin(base, link.get("href") or ""))
        algorithm, _, digest = fragment.partition("=")
        yanked = (link["data-yanked"] or "no reason given") if "data-yanked" in link else None
        if algorithm == "sha256":
            name = unquote(urlsplit(url).path.rpartition("/")[2])
            files.append(OfferedFile(name, url, digest, yanked))
    return files


def compare_sdist(need: SdistNeed, project: IndexProject) -> Iterator[Contradiction]:
    """Yield what of a Horovod pin does not agree with the index."""
    place = ("horovod", need.version)
    file = project.files.get(need.file)
    if file is None:
        listed = "offers no such source distribution" if project.files else "has no such project"
        change = "pin a version that is offered"
        yield Contradiction("missing", need.subject, place, f"the index {listed}", change)
        return
    if file.sha256 != need.sha256:
        evidence = f"{file.name} has sha256 {file.sha256}"
        change = f"the matrix has {need.sha256}: find out which of them the authors released"
        yield Contradiction("sha256", need.subject, (*place, "sha256"), evidence, change)
    if file.yanked:
        evidence = f"withdrawn: {file.yanked}"
        yield Contradiction("yanked", need.subject, place, evidence, "pin another release")


def compare_locks(
    locks: Mapping[str, Lock], projects: Mapping[str, IndexProject]
) -> Iterator[Contradiction]:
    """Yield what of the locks the index no longer offers, or has withdrawn.

    A project that is not in ``projects`` could not be read and is passed over.
    """
    change = "run `imgbuild lock --upgrade`, or pin another version in matrix.yaml"
    for file_name, lock in locks.items():
        for name in (name for name in lock.versions if name in projects):
            offered = {file.sha256: file for file in projects[name].files.values()}
            subject, place = f"{name} {lock.versions[name]}", f"images/locks/{file_name}"
            hashes = lock.hashes[name]
            gone = [sha256 for sha256 in hashes if sha256 not in offered]
            yanked = [offered[one] for one in hashes if one in offered and offered[one].yanked]
            if not offered:
                evidence = "the index has no such project"
                yield Contradiction("missing", subject, place, evidence, change)
            elif gone:
                evidence = f"{len(gone)} of {len(hashes)} files are no longer offered: "
                evidence += f"sha256 {gone[0]}" + " …" * (len(gone) > 1)
                yield Contradiction("gone", subject, place, evidence, change)
            if yanked:
                evidence = f"{yanked[0].name} was withdrawn: {yanked[0].yanked}"
                yield Contradiction("yanked", subject, place, evidence, change)
