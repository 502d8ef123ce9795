"""Query OSV for known vulnerabilities of the packages in an SBOM, online or in downloaded files.

In files, versions of Debian and Ubuntu packages are only compared with the versions that a record
lists, because OSV's records list all of them. Source: OSV API, "POST /v1/querybatch"; OSV schema
1.7, "affected" and its evaluation.
"""

import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from packaging.version import InvalidVersion, Version

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.files import parse_json
from imgbuild.core.unpacking import DAMAGED_ZIP, read_member
from imgbuild.net.sites import Sites

if TYPE_CHECKING:
    from imgbuild.net.http import Answer

#: The name of OSV's upstream in matrix.yaml.
UPSTREAM = "osv"
#: Maximum number of queries in one request to the API.
BATCH = 1000
#: Limits for one record and for a whole file, unpacked, in bytes. In 2026, the longest records have
#: a few MB, and the files of all ecosystems together have a few GB.
LARGEST_RECORD, LARGEST_FILE = 1 << 26, 1 << 35
_PURL = re.compile(r"pkg:(pypi|deb/[a-z]+)/([^@]+)@([^?]+)\??(.*)")
#: Builds of TensorFlow for arm64 by others, of which no database knows. They have its faults.
_BUILDS = {"tensorflow-aarch64": "tensorflow", "tensorflow-cpu-aws": "tensorflow"}
_DISTRIBUTIONS = {"deb/debian": "Debian:{}", "deb/ubuntu": "Ubuntu:{}:LTS"}


@dataclass(frozen=True, order=True)
class Package:
    """A package with its name in OSV; for a distribution, the source package."""

    ecosystem: str
    name: str
    version: str


Known = Mapping[Package, tuple[str, ...]]


def list_packages(sbom: Mapping[str, Any]) -> tuple[Package, ...]:
    """Return the packages in an SBOM that belong to an ecosystem of OSV."""
    packages = set[Package]()
    for component in sbom["components"]:
        match = _PURL.fullmatch(component.get("purl", ""))
        if not match:
            continue
        kind, name, version = match[1], unquote(match[2]), unquote(match[3])
        qualifiers = dict(qualifier.partition("=")[::2] for qualifier in match[4].split("&"))
        if kind == "pypi":
            packages.add(Package("PyPI", _BUILDS.get(name, name), version))
        elif kind in _DISTRIBUTIONS and qualifiers.get("arch") == "source":
            release = qualifiers.get("distro", "").rpartition("-")[2]
            packages.add(Package(_DISTRIBUTIONS[kind].format(release), name, version))
    return tuple(sorted(packages))


def ask(packages: Iterable[Package], sites: Sites) -> Known:
    """Query OSV, or its mirror in the settings, for the vulnerabilities of packages.

    MachineError: the service cannot be reached.
    CheckFailedError: the answer does not have OSV's format.
    """
    known = defaultdict[Package, set[str]](set)
    waiting = [(package, "") for package in packages]
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        answers = _ask_batch(batch, sites)
        for (package, _), (ids, token) in zip(batch, answers, strict=True):
            known[package] |= ids
            if token:
                waiting.append((package, token))
    return {package: tuple(sorted(ids)) for package, ids in known.items() if ids}


def _ask_batch(batch: Sequence[tuple[Package, str]], sites: Sites) -> list[tuple[set[str], str]]:
    """Return the identifiers for each package, with the token of the next page, if any."""
    from imgbuild.net.http import raise_transient  # noqa: PLC0415 - brings requests

    queries: list[dict[str, Any]] = []
    for package, token in batch:
        named = {"ecosystem": package.ecosystem, "name": package.name}
        query: dict[str, Any] = {"package": named, "version": package.version}
        if token:
            query["page_token"] = token
        queries.append(query)
    address = sites.address(sites.upstreams[UPSTREAM].rstrip("/") + "/v1/querybatch")
    content = json.dumps({"queries": queries}).encode()
    kind = {"Content-Type": "application/json"}

    def attempt() -> "Answer":
        answer = client.ask("POST", address, kind, content=content)
        raise_transient(answer.status, answer.headers)
        return answer

    client = sites.client()
    answer = client.retry(f"POST {address}", attempt)
    try:
        results = parse_json(answer.body)["results"] if answer.status == 200 else []
        if len(results) == len(batch):
            return [_read_result(result) for result in results]
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise CheckFailedError(
        f"{address} answered with status {answer.status}, and not in the format of OSV. Check the "
        "mirror of osv in the settings."
    )


def _read_result(result: Mapping[str, Any]) -> tuple[set[str], str]:
    identifiers = {str(vulnerability["id"]) for vulnerability in result.get("vulns", ())}
    return identifiers, result.get("next_page_token", "")


def read(packages: Iterable[Package], path: Path) -> Known:
    """Look up the vulnerabilities of packages in a ZIP file of OSV's records.

    InputError: the file cannot be read, or contains something else.
    """
    requested = defaultdict[tuple[str, str], list[Package]](list)
    for package in packages:
        requested[package.ecosystem, package.name].append(package)
    known = defaultdict[Package, set[str]](set)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > LARGEST_FILE:
                raise InputError(f"--osv {path} unpacks to more than {LARGEST_FILE >> 30} GiB.")
            for member in members:
                if member.file_size > LARGEST_RECORD:
                    raise InputError(
                        f"--osv {path}: {member.filename} unpacks to more than {LARGEST_RECORD:,} "
                        "bytes. Use a file from OSV, for example the all.zip of an ecosystem."
                    )
                record = parse_json(read_member(archive, member, LARGEST_RECORD))
                for package in _affected_packages(record, requested):
                    known[package].add(str(record["id"]))
    except (*DAMAGED_ZIP, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"--osv {path}: {type(error).__name__}: it is not a ZIP file of OSV's records. Use for "
            "example the all.zip of an ecosystem."
        ) from None
    return {package: tuple(sorted(ids)) for package, ids in known.items()}


def _affected_packages(
    record: Mapping[str, Any], requested: Mapping[tuple[str, str], list[Package]]
) -> Iterator[Package]:
    if record.get("withdrawn"):
        return
    for affected in record.get("affected", ()):
        named = affected.get("package") or {}
        ecosystem, name = str(named.get("ecosystem")), str(named.get("name"))
        for package in requested.get((ecosystem, name), ()):
            ranges = affected.get("ranges", ()) if package.ecosystem == "PyPI" else ()
            listed = package.version in affected.get("versions", ())
            if listed or any(_is_within(package.version, versions) for versions in ranges):
                yield package


def _is_within(text: str, versions: Mapping[str, Any]) -> bool:
    """Return whether a PyPI version is in a range, that is, introduced and not yet fixed."""
    if versions.get("type") != "ECOSYSTEM":
        return False
    inside = False
    events: list[tuple[Version, str]] = []
    try:
        own = Version(text)
        for event in versions.get("events", ()):
            events += [(Version(limit), kind) for kind, limit in event.items()]
    except InvalidVersion:
        return False
    for limit, kind in sorted(events, key=itemgetter(0)):
        if kind == "introduced" and own >= limit:
            inside = True
        elif (kind == "fixed" and own >= limit) or (kind == "last_affected" and own > limit):
            inside = False
    return inside
