"""Read, check and resolve the locks of conda interpreters.

A lock has one line for each package, with its sha256 and its URL::

    0123…cdef  https://repo.anaconda.com/pkgs/main/linux-64/python-3.6.2-hca45abc_19.tar.bz2
    unlocked  https://repo.anaconda.com/pkgs/main/linux-64/xz-5.2.3-h5e939de_4.tar.bz2

A package is ``unlocked`` if its channel could not be reached. An image with an unlocked package
cannot be built. If a sha256 does not come from the channel itself, a comment after ``#`` names its
source.
"""

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.sources import Kind, Source
from imgbuild.core.unpacking import unpack_bz2
from imgbuild.locks.lockfile import MAKE_LOCK, read_lock_text
from imgbuild.matrix.components import CondaPython, Python
from imgbuild.matrix.image_sources import file_name
from imgbuild.net.addresses import redact

if TYPE_CHECKING:  # a Dockerfile is rendered without settings
    from imgbuild.net.sites import Sites

#: Size limit for the index of a channel, in bytes, both before and after decompression. The largest
#: index of conda-forge has 60 MB compressed and 300 MB decompressed.
_LIMIT = 1 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")
HEADER = "# Written by `imgbuild lock`: the conda packages of Python {version}, by sha256.\n"
_UNLOCKED = "unlocked"
_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64}|unlocked)  (?P<url>https?://\S+)(?:  # (?P<note>\S.*))?"
)


def conda_lock_name(version: str) -> str:
    """Return the file name of a Python version's lock, for example ``conda-3.6.2.txt``."""
    return f"conda-{version}.txt"


def read_conda_lock(path: Path, advice: str = MAKE_LOCK) -> dict[str, str | None]:
    """Return the sha256 of each package by URL; the sha256 of an unlocked package is None.

    ``advice`` is as in `read_lock_text`.

    InputError: the lock is missing or unreadable, or a line (``file:line``) is invalid or repeats a
        URL.
    """
    lines = _read_lines(path, advice)
    return {
        url: None if line["sha256"] == _UNLOCKED else line["sha256"] for url, line in lines.items()
    }


def _read_lines(path: Path, advice: str = MAKE_LOCK) -> dict[str, re.Match[str]]:
    """Return the parsed lines by URL; raise the errors of `read_conda_lock`."""
    lines: dict[str, re.Match[str]] = {}
    for number, line in enumerate(read_lock_text(path, advice).splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise InputError(
                f"{path.name}:{number}: not a locked package. Write a sha256 or `unlocked`, two "
                "spaces and the URL."
            )
        if match["url"] in lines:
            raise InputError(f"{path.name}:{number}: {match['url']} is listed twice.")
        lines[match["url"]] = match
    return lines


def check_conda_locks(pythons: Mapping[str, CondaPython], folder: Path) -> list[str]:
    """Return a line for each problem: an unreadable lock, or a missing or unknown package."""
    problems = []
    for version, python in pythons.items():
        name = conda_lock_name(version)
        try:
            locked = read_conda_lock(folder / name, advice="")  # the caller gives the advice
        except InputError as error:
            problems.append(str(error))
            continue
        problems += [f"{name}: {url} is missing" for url in python.packages if url not in locked]
        extra = [url for url in locked if url not in python.packages]
        problems += [f"{name}: {url} is not in the matrix" for url in extra]
    return problems


def find_unlocked(pythons: Iterable[str], folder: Path) -> list[str]:
    """Return a line for each lock that has unlocked packages."""
    lines = []
    for version in pythons:
        name = conda_lock_name(version)
        hashes = [*read_conda_lock(folder / name).values()]
        count = hashes.count(None)
        if count:
            lines.append(f"{name}: {count} of {len(hashes)} packages are unlocked")
    return lines


def conda_packages(version: str, python: Python, locks: Path) -> dict[str, str | None]:
    """Return the sha256 of each package of an interpreter by URL.

    The sha256 is None if the package is unlocked or not in the lock. Only a conda interpreter has
    packages.
    """
    if python.origin != "conda":
        return {}
    path = locks / conda_lock_name(version)
    locked = read_conda_lock(path) if path.exists() else {}
    return {url: locked.get(url) for url in python.packages}


def conda_sources(version: str, python: Python, locks: Path) -> list[Source]:
    """Return the packages of an interpreter as sources.

    InputError: a package is unlocked or not in the lock.
    """
    sources = []
    for url, sha256 in conda_packages(version, python, locks).items():
        if sha256 is None:
            raise InputError(
                f"images/locks/{conda_lock_name(version)}: {url} is unlocked, so its sha256 is "
                "unknown. Run `imgbuild lock` on a machine that can reach the channel or a mirror "
                "of it (docs/mirrors.md)."
            )
        sources.append(Source(file_name(url), url, sha256, kind=Kind.CONDA))
    return sources


def resolve_conda(
    version: str, python: CondaPython, folder: Path, sites: "Sites", *, upgrade: bool
) -> tuple[str, list[str]]:
    """Return the text of one interpreter's lock, and an error for each channel that failed.

    Nothing is written. Hashes that the lock in ``folder`` has are kept, unless ``upgrade``. All
    others are read from the channels. If a channel cannot be read, known lines stay and new
    packages are ``unlocked``.

    InputError: the lock in ``folder`` cannot be read.
    CheckFailedError: a channel does not have a package, or has no sha256 for it.
    """
    path = folder / conda_lock_name(version)
    known = _read_lines(path) if path.exists() else {}
    lines = {url: f"{_UNLOCKED}  {url}" for url in python.packages}
    channels: dict[str, list[str]] = defaultdict(list)
    for url in python.packages:
        if url in known:
            lines[url] = known[url][0]
        if upgrade or lines[url].startswith(_UNLOCKED):
            channels[url.rsplit("/", 1)[0]].append(url)
    faults = []
    for channel, urls in channels.items():
        try:
            repodata = _read_repodata(channel, sites)
        except MachineError as error:
            faults.append(f"The conda channel {channel} cannot be read: {error}")
            continue
        for url in urls:
            lines[url] = f"{_find_sha256(repodata, url, channel)}  {url}"
    text = "".join(f"{line}\n" for line in lines.values())
    return HEADER.format(version=version) + text, faults


def _read_repodata(channel: str, sites: "Sites") -> str:
    """Return the channel's ``repodata.json``, from the compressed file if the channel has one."""
    answer = sites.get(f"{channel}/repodata.json.bz2", limit=_LIMIT)
    packed = answer.status == 200
    if not packed:
        answer = sites.get(f"{channel}/repodata.json", limit=_LIMIT)
    if answer.status != 200:
        reason = f"{redact(answer.url)} answered {answer.status}."
        raise MachineError(f"{reason} Name a mirror that has the file (docs/mirrors.md).")
    try:
        content = unpack_bz2(answer.body, _LIMIT) if packed else answer.body
    except (OSError, EOFError, ValueError) as error:
        url = f"{channel}/repodata.json.bz2"
        raise MachineError(
            f"{url} cannot be decompressed: {error}. Check the channel or its mirror."
        ) from error
    return content.decode("utf-8", "replace")


def _find_sha256(repodata: str, url: str, channel: str) -> str:
    """Return the sha256 of one package.

    Parse only the package's entry, because a large channel's whole index would need gigabytes of
    memory.

    CheckFailedError: the channel does not have the package, or has no sha256 for it.
    """
    name = file_name(url)
    start = re.search(rf'"{re.escape(name)}"\s*:\s*', repodata)
    if start is None:
        nearest = _nearest_builds(repodata, name)
        raise CheckFailedError(
            f"The conda channel {channel} has no {name}{nearest}. Correct the URL in matrix.yaml."
        )
    try:
        sha256 = json.JSONDecoder().raw_decode(repodata, start.end())[0]["sha256"]
    except (ValueError, KeyError, TypeError):
        sha256 = None
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise CheckFailedError(
            f"The conda channel {channel} has no sha256 for {name}. Use another build of the "
            "package in matrix.yaml."
        )
    return sha256


def _nearest_builds(repodata: str, name: str) -> str:
    package = re.escape(name.rsplit("-", 2)[0])
    builds = {*re.findall(rf'"({package}-[^"/]+?\.(?:tar\.bz2|conda))"\s*:', repodata)}
    near = difflib.get_close_matches(name, sorted(builds), n=5, cutoff=0.0)
    return f"; similar builds: {', '.join(near)}" if near else " and no other build of that package"
