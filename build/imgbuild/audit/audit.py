"""Audit the pins: against the package index, or against images/evidence.json alone."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from packaging.utils import canonicalize_name

from imgbuild.audit.compare import (
    Contradiction,
    Need,
    compare,
    compare_locks,
    compare_rules,
)
from imgbuild.audit.package_index import OfferedFile, RemoteFile, index_url, read_project
from imgbuild.audit.reachability import OtherInput, check_input, compare_inputs
from imgbuild.audit.wheels import read_wheel
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.errors import MachineError
from imgbuild.files import sha256, write_text
from imgbuild.http import HttpClient
from imgbuild.matrix.evidence import SCHEMA, Facts, WheelFacts, WheelTag, read_evidence
from imgbuild.matrix.images import Image
from imgbuild.parallel import background, in_parallel
from imgbuild.sites import Sites

HOROVOD = "horovod"
_PAGES_AT_ONCE, _WHEELS_AT_ONCE, _INPUTS_AT_ONCE = 8, 3, 16
_WRITE = "run `imgbuild audit --write` where the package index can be reached, and commit the file"

ArtifactState = Literal["read", "cached", "evidence", "offered", "verified", "missing", "unread"]


@dataclass(frozen=True)
class ArtifactOutcome:
    """A wheel or source distribution: how its facts came, or why there are none."""

    need: Need
    state: ArtifactState
    facts: Facts | None = None
    bytes_read: int = 0
    seconds: float = 0.0
    problem: str = ""
    contradictions: tuple[Contradiction, ...] = ()


@dataclass(frozen=True)
class AuditOutcome:
    """Everything that was found. ``locks`` counts the locks, projects and hashes compared."""

    artifacts: Sequence[ArtifactOutcome]
    contradictions: Sequence[Contradiction]
    locks: Mapping[str, int]
    inputs: Sequence[OtherInput] = ()
    seconds: float = 0.0

    @property
    def unread(self) -> list[str]:
        """A paragraph for each file that could not be read."""
        return [one.problem for one in self.artifacts if one.problem]

    @property
    def bytes_read(self) -> int:
        return sum(one.bytes_read for all_ in (self.artifacts, self.inputs) for one in all_)


def write_evidence(path: Path, found: Iterable[Facts], needs: Sequence[Need]) -> bool:
    """Write the facts and the day (UTC); return whether the file changed.

    Facts in the file that were not read this time stay while an image of the matrix needs them. The
    same facts keep their day.
    """
    old = read_evidence(path).facts
    new = {one.sha256: one for one in found}
    fresh = {one.file for one in new.values()}
    others = [one for one in old.values() if one.file not in fresh]
    new |= {one.sha256: one for one in others if any(need.fits(one.file) for need in needs)}
    if new == old:
        return False
    sections: dict[str, dict[str, object]] = {"wheels": {}, "sdists": {}}
    for digest, one in new.items():
        section = "wheels" if isinstance(one, WheelFacts) else "sdists"
        sections[section][digest] = one.model_dump(exclude={"sha256"})
    day = datetime.now(UTC).date().isoformat()
    document = {"schema": SCHEMA, "read": day, **sections}
    write_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n")
    return True


def needs_of(images: Iterable[Image]) -> list[Need]:
    """Return the wheels that the images are made of, then Horovod's sources, each once."""
    groups: dict[tuple[str, str, str], list[Image]] = {}
    for image in images:
        wheel = (image.distribution, image.tensorflow, image.python.wheel_tag)
        source = image.horovod_source
        for key in (wheel, *([(HOROVOD, source[0], "")] if source else [])):
            groups.setdefault(key, []).append(image)
    needs = [Need(*key, tuple(group)) for key, group in groups.items()]
    return sorted(needs, key=lambda need: not need.python_tag)


def audit_offline(
    needs: Iterable[Need], locks: Mapping[str, Lock], evidence: Mapping[str, Facts]
) -> AuditOutcome:
    """Return what of the pins the evidence contradicts or lacks. Reads nothing."""
    artifacts = []
    for need in needs:
        hashes = need.hashes(locks)
        fitting = [one for one in evidence.values() if need.fits(one.file)]
        facts = max(fitting, key=lambda one: one.sha256 in hashes, default=None)
        if facts:
            found = compare(need, facts, locks)
            artifacts.append(ArtifactOutcome(need, "evidence", facts, contradictions=found))
        else:
            text = f"images/evidence.json has no {need.what}"
            lacking = need.contradiction("evidence", text, _WRITE)
            artifacts.append(ArtifactOutcome(need, "missing", contradictions=(lacking,)))
    return AuditOutcome(artifacts, _contradictions(artifacts), _extent(locks, ()))


@dataclass(frozen=True)
class OnlineAudit:
    """What an audit reads from; a wheel whose content is in ``known`` is not read again."""

    client: HttpClient
    sites: Sites
    locks: Mapping[str, Lock]
    known: Mapping[str, Facts]
    download: bool
    log: Callable[[str], None]

    def run(self, needs: Sequence[Need], others: Sequence[OtherInput]) -> AuditOutcome:
        """Return what of the pins the files contradict; MachineError without the index."""
        begin = time.monotonic()
        check = partial(check_input, self.client, self.sites, self.download)
        inputs = background(partial(in_parallel, check, others, _INPUTS_AT_ONCE))
        pages = self._pages(needs)
        artifacts = in_parallel(
            lambda need: self._artifact(need, pages[canonicalize_name(need.distribution)]),
            needs,
            _WHEELS_AT_ONCE,
        )
        states = inputs.result()
        contradictions = (
            *_contradictions(artifacts),
            *compare_rules(needs, [one.facts for one in artifacts if one.facts]),
            *compare_locks(self.locks, pages),
            *compare_inputs(states),
        )
        seconds = time.monotonic() - begin
        return AuditOutcome(artifacts, contradictions, _extent(self.locks, pages), states, seconds)

    def _pages(self, needs: Iterable[Need]) -> dict[str, dict[str, OfferedFile]]:
        index = index_url(self.sites)
        names = {canonicalize_name(need.distribution) for need in needs}
        projects = sorted(names.union(*(lock.versions for lock in self.locks.values())))
        try:
            pages = in_parallel(partial(read_project, self.client, index), projects, _PAGES_AT_ONCE)
        except MachineError as error:
            raise MachineError(
                f"The Python package index cannot be read: {error} Set another one as "
                "UV_DEFAULT_INDEX, or as the mirror python-index in imgbuild.local.yaml. "
                "`imgbuild audit --offline` compares with images/evidence.json alone."
            ) from error
        return dict(zip(projects, pages, strict=True))

    def _artifact(self, need: Need, page: Mapping[str, OfferedFile]) -> ArtifactOutcome:
        fitting = [file for file in page.values() if need.fits(file.name)]
        file = max(fitting, key=lambda one: one.name, default=None)  # the newest platform tag
        if file is None:
            text = f"the index has no {need.what}"
            missing = need.contradiction("missing", text, "pin a version that is offered")
            return ArtifactOutcome(need, "missing", contradictions=(missing,))
        found = []
        if file.yanked:
            text = f"{file.name} was withdrawn: {file.yanked}"
            found.append(need.contradiction("yanked", text, "pin another release"))
        begin = time.monotonic()
        try:
            read = self._read(need, file, _pythons(need, page))
        except MachineError as error:
            return ArtifactOutcome(need, "unread", problem=str(error), contradictions=tuple(found))
        if read.facts:
            found += compare(need, read.facts, self.locks)
        return replace(read, seconds=time.monotonic() - begin, contradictions=tuple(found))

    def _read(
        self, need: Need, file: OfferedFile, pythons: tuple[WheelTag, ...]
    ) -> ArtifactOutcome:
        known = self.known.get(file.sha256)
        if isinstance(known, WheelFacts):
            same = known.model_copy(update={"pythons": pythons})  # wheels are added later, too
            return ArtifactOutcome(need, "cached", same)
        remote = RemoteFile(self.client, file.url)
        if need.python_tag:
            wheel = read_wheel(remote, file.name, file.sha256, pythons)
            self.log(f"{need.subject}: {remote.bytes_read / 1e6:.1f} MB read")
            return ArtifactOutcome(need, "read", wheel, remote.bytes_read)
        content = remote.read(remote.size) if self.download else b""
        digest = sha256(content) if content else file.sha256
        verified = content and digest in need.hashes(self.locks)
        facts = Facts(
            sha256=digest,
            file=file.name,
            size=remote.size,
            name=need.distribution,
            version=need.version,
        )
        return ArtifactOutcome(need, "verified" if verified else "offered", facts, len(content))


def _contradictions(artifacts: Iterable[ArtifactOutcome]) -> tuple[Contradiction, ...]:
    return tuple(found for one in artifacts for found in one.contradictions)


def _pythons(need: Need, page: Iterable[str]) -> tuple[WheelTag, ...]:
    """Return the Pythons that the release has wheels for, among those that the matrix may have."""
    tags = get_args(WheelTag) if need.python_tag else ()
    return tuple(tag for tag in tags if any(map(replace(need, python_tag=tag).fits, page)))


def _extent(locks: Mapping[str, Lock], projects: Iterable[str]) -> dict[str, int]:
    names = {name for lock in locks.values() for name in lock.versions}.intersection(projects)
    hashes = {one for lock in locks.values() for name in names for one in lock.hashes.get(name, ())}
    return {"locks": len(locks), "projects": len(names), "hashes": len(hashes)}
