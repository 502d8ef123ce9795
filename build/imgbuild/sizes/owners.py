"""Which package a file belongs to: what dpkg, Python's installers and conda wrote down.

An owner is written ``deb:libc6``, ``python:numpy`` or ``conda:openssl``.
"""

import csv
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

#: No list of files is longer: TensorFlow's has 2 MB. The rest of a longer file is not read.
LONGEST_LISTING = 32 * 1024 * 1024
_DPKG = re.compile(r"var/lib/dpkg/info/([a-z0-9.+-]+)(?::[a-z0-9]+)?\.list")
_RECORD = re.compile(r"((?:.*/)?)([^/]+?)-[^/-]+\.dist-info/RECORD")
_CONDA = re.compile(r"((?:.*/)?)conda-meta/([^/]+)-[^/-]+-[^/-]+\.json")
_COMPILED = re.compile(r"(.*/)?__pycache__/([^/]+?)\.[^/.]+(?:\.opt-[12])?\.pyc")


class Listing(NamedTuple):
    """The files of one package, as paths from the root."""

    owner: str
    paths: tuple[str, ...]


def read_listing(path: str, size: int, opened: Callable[[], IO[bytes] | None]) -> Iterator[Listing]:
    """Yield what a file of a layer says, if it is a package's list of files.

    A list that cannot be read says nothing: its files count as nobody's.
    """
    readers = ((_DPKG, _of_dpkg), (_RECORD, _of_record), (_CONDA, _of_conda))
    for pattern, reader in readers:
        found = pattern.fullmatch(path)
        if found and size <= LONGEST_LISTING:
            file = opened()
            text = file.read().decode("utf-8", "replace") if file else ""
            yield from reader(found, text)


def owners_of(listings: Iterable[Listing]) -> Callable[[str], str]:
    """Return what tells the owner of a path; an empty text for what nobody lists."""
    owners = {path: listing.owner for listing in listings for path in listing.paths}

    def find(path: str) -> str:
        source = _COMPILED.sub(r"\1\2.py", path)
        # Packages still list /lib/x where the file is /usr/lib/x.
        return owners.get(path) or owners.get(source) or owners.get(path.removeprefix("usr/")) or ""

    return find


def _of_dpkg(found: re.Match[str], text: str) -> Iterator[Listing]:
    yield Listing(f"deb:{found[1]}", tuple(line.lstrip("/") for line in text.splitlines()))


def _of_record(found: re.Match[str], text: str) -> Iterator[Listing]:
    """Yield a wheel's files. Source: PEP 376 and 427; paths are relative to site-packages."""
    name = re.sub(r"[-_.]+", "-", found[2]).lower()
    rows = csv.reader(text.splitlines())
    paths = [posixpath.normpath(found[1] + row[0]) for row in rows if row]
    yield Listing(f"python:{name}", tuple(path.lstrip("/") for path in paths))


def _of_conda(found: re.Match[str], text: str) -> Iterator[Listing]:
    try:
        files = json.loads(text)["files"]
        yield Listing(f"conda:{found[2]}", tuple(f"{found[1]}{name}" for name in files))
    except (ValueError, KeyError, TypeError):
        return
