"""Hashes of conda packages, out of the ``repodata.json`` that every folder of a channel has."""

import bz2
import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from imgbuild.downloads.page import read_page
from imgbuild.downloads.sites import Sites, shown
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import write_text
from imgbuild.locks.conda import HEADER, CondaEntry, conda_lock_name, read_conda_lock
from imgbuild.matrix.model import CondaPython

#: conda-forge's largest has 60 MB packed and 300 MB unpacked.
_LIMIT = 1 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")


def resolve_conda(
    version: str, python: CondaPython, folder: Path, sites: Sites, *, upgrade: bool
) -> bool:
    """Write the lock of one interpreter; return whether the file changed.

    Hashes that are there are kept, unless ``upgrade``; the channels are asked for the others. If
    a channel cannot be reached, the lock is written all the same, its new packages ``unlocked``.

    Raises:
        CheckFailedError: a channel does not have a package.
        MachineError: a channel cannot be reached.

    """
    path = folder / conda_lock_name(version)
    known = dict(read_conda_lock(path)) if path.exists() else {}
    previous = path.read_text(encoding="utf-8") if path.exists() else ""
    asked = [url for url in python.packages if upgrade or not _locked(known, url)]
    faults = []
    for channel, urls in _by_channel(asked).items():
        try:
            known |= _ask(channel, urls, sites)
        except MachineError as error:
            faults.append(f"The conda channel {channel} cannot be read: {error}")
    entries = [known.get(url, CondaEntry(url)) for url in python.packages]
    text = HEADER.format(version=version) + "".join(entry.line for entry in entries)
    if text != previous:
        write_text(path, text)
    if faults:
        raise MachineError(f"{' '.join(faults)} The lock's lines of it stay as they are.")
    return text != previous


def _locked(known: Mapping[str, CondaEntry], url: str) -> bool:
    return url in known and known[url].sha256 is not None


def _by_channel(urls: Iterable[str]) -> Mapping[str, list[str]]:
    channels: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        channels[url.rsplit("/", 1)[0]].append(url)
    return channels


def _ask(channel: str, urls: Iterable[str], sites: Sites) -> dict[str, CondaEntry]:
    repodata = _repodata(channel, sites)
    return {url: CondaEntry(url, _find(repodata, url, channel)) for url in urls}


def _repodata(channel: str, sites: Sites) -> str:
    """Return the channel's ``repodata.json``, packed on the way where the channel has it so."""
    packed = read_page(f"{channel}/repodata.json.bz2", sites, limit=_LIMIT)
    if packed.status == 200:
        return _unpacked(packed.body, channel)
    plain = read_page(f"{channel}/repodata.json", sites, limit=_LIMIT)
    if plain.status == 200:
        return plain.body.decode("utf-8", "replace")
    where = shown(sites.address(f"{channel}/repodata.json"))
    raise MachineError(
        f"{where} answered {plain.status}. Name a mirror that has it (docs/mirrors.md)."
    )


def _unpacked(body: bytes, channel: str) -> str:
    try:
        return bz2.decompress(body).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        raise MachineError(
            f"{channel}/repodata.json.bz2 is not what a conda channel has there: {error}."
        ) from error


def _find(repodata: str, url: str, channel: str) -> str:
    """Return the sha256 of one package.

    Its entry is read alone: the whole of a large channel would take gigabytes of memory.
    """
    name = url.rsplit("/", 1)[1]
    start = re.search(rf'"{re.escape(name)}"\s*:\s*', repodata)
    if start is None:
        raise CheckFailedError(
            f"The conda channel {channel} has no {name}{_near(repodata, name)}. Correct the URL in "
            "matrix.yaml."
        )
    try:
        sha256 = json.JSONDecoder().raw_decode(repodata, start.end())[0]["sha256"]
    except (ValueError, KeyError, TypeError):
        sha256 = None
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise CheckFailedError(f"The conda channel {channel} gives no sha256 for {name}.")
    return sha256


def _near(repodata: str, name: str) -> str:
    package = re.escape(name.rsplit("-", 2)[0])
    there = {*re.findall(rf'"({package}-[^"/]+?\.(?:tar\.bz2|conda))"\s*:', repodata)}
    near = difflib.get_close_matches(name, sorted(there), n=5, cutoff=0.0)
    return f"; near it are: {', '.join(near)}" if near else " and no other build of that package"
