"""Evaluate an image: missing updates, known vulnerabilities and unsupported parts."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from pydantic import TypeAdapter

from imgbuild.core.files import write_text
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Accepted
from imgbuild.scan.osv import Known
from imgbuild.scan.updates import Update

#: Prefixes that OSV adds to the identifiers of a distribution's advisories.
_PREFIXES = ("DEBIAN-", "UBUNTU-")
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True)
class SecurityFinding:
    """A vulnerability or a missing security update of one package.

    - ``id``: the identifier of the advisory, or the name of the package
    - ``fix``: the version that fixes it; empty if unknown
    - ``status``: "open", or until when it is accepted, and the reason
    - ``counts``: whether it is open, or its acceptance has expired
    """

    id: str
    package: str
    installed: str
    fix: str
    status: str
    counts: bool = True


@dataclass(frozen=True)
class Scan:
    """The findings of one image, with the day and the queried sources.

    ``vulnerabilities`` is the queried source of known vulnerabilities. If there was none, it says
    so, and the list of findings is incomplete. ``other_updates`` are newer packages without a
    security fix.
    """

    image: str
    image_id: str
    day: str
    findings: tuple[SecurityFinding, ...]
    vulnerabilities: str
    end_of_life: tuple[str, ...]
    other_updates: tuple[str, ...]

    @property
    def open(self) -> tuple[SecurityFinding, ...]:
        return tuple(finding for finding in self.findings if finding.counts)


def _scan_file(state: Path, image_id: str) -> Path:
    return state / "scans" / f"{image_id.removeprefix('sha256:')}.json"


def save_scan(scan: Scan, state: Path) -> None:
    """Store the latest scan of an image in the state folder, for the catalog."""
    write_text(_scan_file(state, scan.image_id), json.dumps(asdict(scan)) + "\n")


def read_scan(image_id: str, state: Path) -> Scan | None:
    """Return the latest scan of an image on this machine; None if it is missing or damaged."""
    try:
        return TypeAdapter(Scan).validate_json(_scan_file(state, image_id).read_bytes())
    except (OSError, ValueError):
        return None


def match_findings(
    updates: Iterable[Update], known: Known, accepted: Sequence[Accepted], today: date
) -> Iterator[SecurityFinding]:
    """Yield the security findings: updates first, then known vulnerabilities."""
    for update in updates:
        if update.security:
            name, have = update.package, update.installed or "-"
            status = _status(name, accepted, today)
            yield SecurityFinding(name, name, have, update.available, *status)
    for package, ids in known.items():
        for advisory in ids:
            status = _status(advisory, accepted, today)
            yield SecurityFinding(advisory, package.name, package.version, "", *status)


def _status(identifier: str, accepted: Sequence[Accepted], today: date) -> tuple[str, bool]:
    """Return the status of a finding, and whether it counts."""
    for prefix in _PREFIXES:
        identifier = identifier.removeprefix(prefix)
    for decision in accepted:
        if decision.id == identifier:
            text = f"accepted until {decision.until}: {decision.reason}"
            return text, decision.until < today
    return "open", True


def find_unsupported_parts(image: Image, today: date) -> Iterator[str]:
    """Yield a sentence for each part of an image that no longer gets security fixes."""
    parts = {
        "tensorflow": image.tensorflow,
        "python": image.version_of("python"),
        image.os.distribution: image.os.version,
    }
    for ended in image.matrix.end_of_life:
        version = parts.get(ended.part)
        if not version or version not in SpecifierSet(ended.versions):
            continue
        if ended.since is None or ended.since <= today:
            since = f" since {ended.since}" if ended.since else ""
            title = "TensorFlow" if ended.part == "tensorflow" else ended.part.capitalize()
            yield f"{title} {version} gets no security fixes{since} ({ended.source})"


def make_sarif(scans: Iterable[Scan], version: str) -> Mapping[str, Any]:
    """Return the findings that count in SARIF 2.1.0, located at the images' Dockerfiles."""
    results, rules = [], {}
    for scan in scans:
        for finding in scan.open:
            text = f"{finding.package} {finding.installed}"
            text += f": update to {finding.fix}" if finding.fix else f" has {finding.id}"
            rules[finding.id] = {"id": finding.id, "shortDescription": {"text": text}}
            fingerprint = f"{scan.image} {finding.id} {finding.package}"
            # An image for arm64 has the Dockerfile of the one for amd64.
            folder = scan.image.removesuffix("-arm64")
            place = {"uri": f"images/dockerfiles/{folder}/Dockerfile"}
            result = {
                "ruleId": finding.id,
                "level": "warning",
                "message": {"text": f"{scan.image}: {text}."},
                "locations": [{"physicalLocation": {"artifactLocation": place}}],
                "partialFingerprints": {"imgbuild/v1": fingerprint},
            }
            results.append(result)
    driver = {"name": "imgbuild", "version": version, "rules": [*rules.values()]}
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}
