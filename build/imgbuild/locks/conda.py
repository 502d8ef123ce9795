"""The lock of a conda interpreter: one package a line, its sha256 before its URL.

::

    0123…cdef  https://repo.anaconda.com/pkgs/main/linux-64/python-3.6.2-hca45abc_19.tar.bz2
    unlocked  https://repo.anaconda.com/pkgs/main/linux-64/xz-5.2.3-h5e939de_4.tar.bz2

``unlocked`` says that the channel was never asked, for want of a way to it; what is unlocked cannot
be built with. A comment after ``#`` says where a hash was seen, if not in the channel itself.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imgbuild.downloads.download import Download
from imgbuild.errors import InputError
from imgbuild.matrix.model import CondaPython, Matrix

HEADER = "# Written by `imgbuild lock`: the conda packages of Python {version}, by sha256.\n"
_UNLOCKED = "unlocked"
_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64}|unlocked)  (?P<url>https?://\S+)(?:  # (?P<note>\S.*))?"
)


@dataclass(frozen=True)
class CondaEntry:
    """One package: its sha256, ``None`` if unlocked, and where that was seen."""

    url: str
    sha256: str | None = None
    note: str | None = None

    @property
    def line(self) -> str:
        """The entry as the lock holds it."""
        comment = f"  # {self.note}" if self.note else ""
        return f"{self.sha256 or _UNLOCKED}  {self.url}{comment}\n"


def conda_lock_name(version: str) -> str:
    """Return the name of the lock of one Python version, such as ``conda-3.6.2.txt``."""
    return f"conda-{version}.txt"


def conda_pythons(
    matrix: Matrix, versions: Iterable[str] | None = None
) -> Mapping[str, CondaPython]:
    """Return the conda interpreters of the matrix, all or those of ``versions``."""
    chosen = matrix.python if versions is None else {*versions}
    return {
        version: python
        for version, python in matrix.python.items()
        if isinstance(python, CondaPython) and version in chosen
    }


def read_conda_lock(path: Path) -> Mapping[str, CondaEntry]:
    """Return the entries by URL.

    Raises:
        InputError: it is missing, or holds a line that is no entry, or one twice (``file:line``).

    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name}: not UTF-8 text. Restore it, or run `imgbuild lock`."
        ) from error
    except OSError as error:
        raise InputError(
            f"{path.name}: {error.strerror}. Run `imgbuild lock`, then commit the result."
        ) from error
    entries: dict[str, CondaEntry] = {}
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#"):
            entry = _entry(line, f"{path.name}:{number}")
            if entry.url in entries:
                raise InputError(f"{path.name}:{number}: {entry.url} is there twice.")
            entries[entry.url] = entry
    return entries


def find_conda_problems(pythons: Mapping[str, CondaPython], folder: Path) -> list[str]:
    """Return one line a problem: a lock that cannot be read, a package missing or left over."""
    return [
        line for version, python in pythons.items() for line in _problems(version, python, folder)
    ]


def find_unlocked(pythons: Mapping[str, CondaPython], folder: Path) -> list[str]:
    """Return one line a lock that holds unlocked packages; locks with problems are passed over."""
    lines = []
    for version, python in pythons.items():
        name = conda_lock_name(version)
        if not list(_problems(version, python, folder)):
            entries = read_conda_lock(folder / name).values()
            count = sum(entry.sha256 is None for entry in entries)
            lines += [f"{name}: {count} of {len(entries)} packages are unlocked"] if count else []
    return lines


def conda_downloads(version: str, python: CondaPython, folder: Path) -> tuple[Download, ...]:
    """Return the packages of one interpreter, in the order of the matrix.

    Raises:
        InputError: the lock is missing, or a package of the matrix is not in it or unlocked.

    """
    name = conda_lock_name(version)
    entries = read_conda_lock(folder / name)
    found = []
    for url in python.packages:
        entry = entries.get(url)
        if entry is None or entry.sha256 is None:
            what = "is not in it" if entry is None else "is unlocked: its sha256 is not known"
            raise InputError(
                f"images/locks/{name}: {url} {what}. Run `imgbuild lock` where its channel, or a "
                "mirror of it (docs/mirrors.md), can be reached."
            )
        found.append(Download(url.rsplit("/", 1)[1], url, entry.sha256))
    return tuple(found)


def _entry(line: str, place: str) -> CondaEntry:
    match = _LINE.fullmatch(line)
    if not match:
        raise InputError(
            f"{place}: not a locked package: a sha256 or `unlocked`, two spaces, the URL."
        )
    sha256 = match["sha256"]
    return CondaEntry(match["url"], None if sha256 == _UNLOCKED else sha256, match["note"])


def _problems(version: str, python: CondaPython, folder: Path) -> Iterator[str]:
    name = conda_lock_name(version)
    try:
        entries = read_conda_lock(folder / name)
    except InputError as error:
        yield str(error)
        return
    yield from (f"{name}: {url} is missing" for url in python.packages if url not in entries)
    yield from (
        f"{name}: {url} is not in the matrix" for url in entries if url not in python.packages
    )
