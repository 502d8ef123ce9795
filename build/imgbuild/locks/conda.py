"""The lock of a conda interpreter: one package a line, its sha256 before its URL.

::

    0123…cdef  https://repo.anaconda.com/pkgs/main/linux-64/python-3.6.2-hca45abc_19.tar.bz2
    unlocked  https://repo.anaconda.com/pkgs/main/linux-64/xz-5.2.3-h5e939de_4.tar.bz2

``unlocked`` says that the channel could not be reached; an image with unlocked packages cannot be
built. A comment after ``#`` says where a hash was seen, if not in the channel itself.
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

#: Limit for the index of a channel, packed or unpacked, in bytes. conda-forge's largest channel has
#: 60 MB packed and 300 MB unpacked.
_LIMIT = 1 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")
HEADER = "# Written by `imgbuild lock`: the conda packages of Python {version}, by sha256.\n"
_UNLOCKED = "unlocked"
_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64}|unlocked)  (?P<url>https?://\S+)(?:  # (?P<note>\S.*))?"
)


def conda_lock_name(version: str) -> str:
    """Return the name of the lock of one Python version, such as ``conda-3.6.2.txt``."""
    return f"conda-{version}.txt"


def read_conda_lock(path: Path, advice: str = MAKE_LOCK) -> dict[str, str | None]:
    """Return the sha256 of each package by URL, None if it is unlocked.

    ``advice`` is as in `read_lock_text`.

    InputError: a line (``file:line``) is not a package, or is listed twice.
    """
    lines = _read_lines(path, advice)
    return {
        url: None if line["sha256"] == _UNLOCKED else line["sha256"] for url, line in lines.items()
    }


def _read_lines(path: Path, advice: str = MAKE_LOCK) -> dict[str, re.Match[str]]:
    """Return the lines by URL; raises as `read_conda_lock`."""
    lines: dict[str, re.Match[str]] = {}
    for number, line in enumerate(read_lock_text(path, advice).splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise InputError(
                f"{path.name}:{number}: not a locked package: a sha256 or `unlocked`, two spaces, "
                "the URL."
            )
        if match["url"] in lines:
            raise InputError(f"{path.name}:{number}: {match['url']} is listed twice.")
        lines[match["url"]] = match
    return lines


def check_conda_locks(pythons: Mapping[str, CondaPython], folder: Path) -> list[str]:
    """Return one line a problem: a lock that cannot be read, a package missing or left over."""
    problems = []
    for version, python in pythons.items():
        name = conda_lock_name(version)
        try:
            locked = read_conda_lock(folder / name, advice="")  # the list has its own
        except InputError as error:
            problems.append(str(error))
            continue
        problems += [f"{name}: {url} is missing" for url in python.packages if url not in locked]
        extra = [url for url in locked if url not in python.packages]
        problems += [f"{name}: {url} is not in the matrix" for url in extra]
    return problems


def find_unlocked(pythons: Iterable[str], folder: Path) -> list[str]:
    """Return one line a lock that holds unlocked packages."""
    lines = []
    for version in pythons:
        name = conda_lock_name(version)
        hashes = [*read_conda_lock(folder / name).values()]
        count = hashes.count(None)
        if count:
            lines.append(f"{name}: {count} of {len(hashes)} packages are unlocked")
    return lines


def conda_packages(version: str, python: Python, locks: Path) -> dict[str, str | None]:
    """Return the sha256 of an interpreter's packages by URL, None for those in no lock."""
    if python.origin != "conda":
        return {}
    path = locks / conda_lock_name(version)
    locked = read_conda_lock(path) if path.exists() else {}
    return {url: locked.get(url) for url in python.packages}


def conda_sources(version: str, python: Python, locks: Path) -> list[Source]:
    """Return the packages as sources; InputError if one is not in the lock or unlocked."""
    sources = []
    for url, sha256 in conda_packages(version, python, locks).items():
        if sha256 is None:
            raise InputError(
                f"images/locks/{conda_lock_name(version)}: {url} is unlocked: its sha256 is not "
                "known. Run `imgbuild lock` where its channel, or a mirror of it "
                "(docs/mirrors.md), can be reached."
            )
        sources.append(Source(file_name(url), url, sha256, kind=Kind.CONDA))
    return sources


def resolve_conda(
    version: str, python: CondaPython, folder: Path, sites: "Sites", *, upgrade: bool
) -> tuple[str, list[str]]:
    """Return the lock of one interpreter, and which channels could not be read; nothing is written.

    Known hashes in ``folder`` are kept, unless ``upgrade``; the others are read from the channels.
    New packages of a channel that cannot be reached are ``unlocked``; a channel that does not have
    a package is a CheckFailedError.
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
    """Return the channel's ``repodata.json``, from the packed file if the channel has one."""
    answer = sites.get(f"{channel}/repodata.json.bz2", limit=_LIMIT)
    packed = answer.status == 200
    if not packed:
        answer = sites.get(f"{channel}/repodata.json", limit=_LIMIT)
    if answer.status != 200:
        reason = f"{redact(answer.url)} answered {answer.status}."
        raise MachineError(f"{reason} Name a mirror that has it (docs/mirrors.md).")
    try:
        content = unpack_bz2(answer.body, _LIMIT) if packed else answer.body
    except (OSError, EOFError, ValueError) as error:
        url = f"{channel}/repodata.json.bz2"
        raise MachineError(f"{url} is not the packed index of a conda channel: {error}.") from error
    return content.decode("utf-8", "replace")


def _find_sha256(repodata: str, url: str, channel: str) -> str:
    """Return the sha256 of one package.

    Its entry is read alone: the whole of a large channel would take gigabytes of memory.
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
        raise CheckFailedError(f"The conda channel {channel} gives no sha256 for {name}.")
    return sha256


def _nearest_builds(repodata: str, name: str) -> str:
    package = re.escape(name.rsplit("-", 2)[0])
    builds = {*re.findall(rf'"({package}-[^"/]+?\.(?:tar\.bz2|conda))"\s*:', repodata)}
    near = difflib.get_close_matches(name, sorted(builds), n=5, cutoff=0.0)
    return f"; nearest: {', '.join(near)}" if near else " and no other build of that package"
