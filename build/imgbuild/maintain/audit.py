"""Audit the pins against the package index, or only against images/evidence.json."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import get_args

from packaging.utils import canonicalize_name

from imgbuild.core.errors import MachineError
from imgbuild.core.files import sha256, write_text
from imgbuild.core.parallel import background, in_parallel
from imgbuild.locks.lockfile import Lock
from imgbuild.maintain.compare import (
    Artifact,
    ArtifactState,
    Contradiction,
    compare,
    compare_locks,
    compare_rules,
)
from imgbuild.maintain.package_index import (
    OfferedFile,
    RemoteFile,
    find_index_url,
    read_project_page,
)
from imgbuild.maintain.reachability import AWAY, OtherInput, check_input, compare_inputs
from imgbuild.maintain.wheels import read_wheel
from imgbuild.matrix.evidence import (
    SCHEMA,
    Architecture,
    Facts,
    WheelFacts,
    WheelTag,
    read_evidence,
)
from imgbuild.matrix.images import Image
from imgbuild.net.http import HttpClient
from imgbuild.net.sites import Sites

HOROVOD = "horovod"
_PAGES_AT_ONCE, _WHEELS_AT_ONCE, _INPUTS_AT_ONCE = 8, 3, 16
_WRITE = "run `imgbuild audit --write` where the package index can be reached, and commit the file"

Log = Callable[[str], None]


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit. ``locks`` has the numbers of compared locks, projects and hashes."""

    artifacts: Sequence[Artifact]
    contradictions: Sequence[Contradiction]
    locks: Mapping[str, int]
    inputs: Sequence[OtherInput] = ()
    seconds: float = 0.0

    @property
    def facts(self) -> list[Facts]:
        """The facts of the artifacts that could be read."""
        return [artifact.facts for artifact in self.artifacts if artifact.facts]

    @property
    def unread(self) -> list[str]:
        """A paragraph for each file that could not be read."""
        return [artifact.problem for artifact in self.artifacts if artifact.problem]

    @property
    def away(self) -> list[str]:
        """The names of the other inputs that could not be reached."""
        return [item.name for item in self.inputs if item.state == AWAY]

    @property
    def bytes_read(self) -> int:
        artifacts = sum(artifact.bytes_read for artifact in self.artifacts)
        return artifacts + sum(item.bytes_read for item in self.inputs)


def write_evidence(path: Path, read: Iterable[Facts], artifacts: Sequence[Artifact]) -> bool:
    """Write the facts and the day (UTC); return whether the file changed.

    Facts that were not read this time are kept if an image in the matrix needs them. If the facts
    are the same, the file keeps its day.
    """
    old = read_evidence(path).facts
    new = {facts.sha256: facts for facts in read}
    fresh = {facts.file for facts in new.values()}
    for digest, facts in old.items():
        needed = any(artifact.fits(facts.file) for artifact in artifacts)
        if needed and facts.file not in fresh:
            new[digest] = facts
    if new == old:
        return False
    wheels: dict[str, object] = {}
    sdists: dict[str, object] = {}
    for digest, facts in new.items():
        section = wheels if isinstance(facts, WheelFacts) else sdists
        section[digest] = facts.model_dump(exclude={"sha256"})
    day = datetime.now(UTC).date().isoformat()
    document = {"schema": SCHEMA, "read": day, "wheels": wheels, "sdists": sdists}
    text = json.dumps(document, indent=1, sort_keys=True)
    write_text(path, f"{text}\n")
    return True


def list_artifacts(images: Iterable[Image]) -> list[Artifact]:
    """Return the TensorFlow wheels of the images, then Horovod's sources, without duplicates."""
    wheels: dict[tuple[str, str, str, Architecture], list[Image]] = {}
    sources: dict[str, list[Image]] = {}
    for image in images:
        tag = image.python.wheel_tag
        wheel = (image.distribution, image.tensorflow, tag, image.architecture)
        wheels.setdefault(wheel, []).append(image)
        if image.horovod_source:
            sources.setdefault(image.horovod_source[0], []).append(image)
    artifacts = []
    for (name, version, python_tag, architecture), group in wheels.items():
        artifact = Artifact(name, version, python_tag, tuple(group), architecture=architecture)
        artifacts.append(artifact)
    for version, group in sources.items():
        artifact = Artifact(HOROVOD, version, python_tag="", images=tuple(group))
        artifacts.append(artifact)
    return artifacts


def audit_offline(
    artifacts: Iterable[Artifact], locks: Mapping[str, Lock], evidence: Mapping[str, Facts]
) -> AuditResult:
    """Compare the pins with the evidence; nothing is read from the index."""
    compared = []
    for artifact in artifacts:
        hashes = artifact.hashes(locks)
        fitting = [facts for facts in evidence.values() if artifact.fits(facts.file)]
        locked = [facts for facts in fitting if facts.sha256 in hashes]
        if fitting:
            best, *_ = locked or fitting
            known = replace(artifact, state="evidence", facts=best)
            compared.append(_add_contradictions(known, locks))
        else:
            text = f"images/evidence.json has no {artifact.title}"
            compared.append(_contradict(artifact, "evidence", text, _WRITE))
    contradictions = _list_contradictions(compared)
    counts = _count_locked(locks, ())
    return AuditResult(compared, contradictions, counts)


def audit_online(  # noqa: PLR0913 - both sides of the comparison
    artifacts: Sequence[Artifact],
    inputs: Sequence[OtherInput],
    locks: Mapping[str, Lock],
    sites: Sites,
    log: Log,
    *,
    known: Mapping[str, Facts],
    download: bool = False,
) -> AuditResult:
    """Compare the pins with the files of the package index.

    A wheel whose facts are in ``known`` is not read again. ``download`` verifies whole files.

    MachineError: the index cannot be read.
    """
    begin, client = time.monotonic(), sites.client()
    check = partial(check_input, client, sites, download)
    checking = background(partial(in_parallel, check, inputs, _INPUTS_AT_ONCE))
    pages = _read_pages(artifacts, locks, client, sites)

    def read(artifact: Artifact) -> Artifact:
        page = pages[canonicalize_name(artifact.distribution)]
        file = _newest_file(artifact, page)
        if file is None:
            text = f"the index has no {artifact.title}"
            return _contradict(artifact, "missing", text, "pin a version that the index has")
        if file.yanked:
            text = f"{file.name} was yanked: {file.yanked}"
            artifact = _contradict(artifact, "yanked", text, "pin another release")
        start = time.monotonic()
        try:
            if artifact.python_tag:
                pythons = _offered_pythons(artifact, page)
                artifact = _read_wheel(artifact, file, pythons, client, known, log)
            else:
                artifact = _read_source(artifact, file, client, download=download)
        except MachineError as error:
            return replace(artifact, state="unread", problem=str(error))
        seconds = time.monotonic() - start
        artifact = replace(artifact, seconds=seconds)
        return _add_contradictions(artifact, locks)

    artifacts = in_parallel(read, artifacts, _WHEELS_AT_ONCE)
    inputs = checking.result()
    contradictions = (
        *_list_contradictions(artifacts),
        *compare_rules(artifacts),
        *compare_locks(locks, pages),
        *compare_inputs(inputs),
    )
    counts = _count_locked(locks, pages)
    seconds = time.monotonic() - begin
    return AuditResult(artifacts, contradictions, counts, inputs, seconds)


def _read_pages(
    artifacts: Iterable[Artifact], locks: Mapping[str, Lock], client: HttpClient, sites: Sites
) -> dict[str, dict[str, OfferedFile]]:
    """Return the index's files for all projects of the artifacts and locks, by project."""
    read = partial(read_project_page, client, find_index_url(sites))
    names: set[str] = {canonicalize_name(artifact.distribution) for artifact in artifacts}
    for lock in locks.values():
        names.update(lock.versions)
    projects = sorted(names)
    try:
        pages = in_parallel(read, projects, _PAGES_AT_ONCE)
    except MachineError as error:
        raise MachineError(
            f"The Python package index cannot be read: {error} Set another one with "
            "UV_DEFAULT_INDEX, or as the mirror python-index in imgbuild.local.yaml. "
            "`imgbuild audit --offline` only compares with images/evidence.json."
        ) from error
    return dict(zip(projects, pages, strict=True))


def _newest_file(artifact: Artifact, page: Mapping[str, OfferedFile]) -> OfferedFile | None:
    """Return the fitting file with the newest platform tag."""
    fitting = [file for file in page.values() if artifact.fits(file.name)]
    return max(fitting, key=lambda file: file.name, default=None)


def _read_wheel(  # noqa: PLR0913, PLR0917 - the file and its source
    artifact: Artifact,
    file: OfferedFile,
    pythons: tuple[WheelTag, ...],
    client: HttpClient,
    known: Mapping[str, Facts],
    log: Log,
) -> Artifact:
    facts = known.get(file.sha256)
    if isinstance(facts, WheelFacts):
        facts = facts.model_copy(update={"pythons": pythons})  # a release can get wheels later
        return replace(artifact, state="cached", facts=facts)
    remote = RemoteFile(client, file.url)
    facts = read_wheel(remote, file.name, file.sha256, pythons)
    log(f"{artifact.subject}: {remote.bytes_read / 1e6:.1f} MB read")
    return replace(artifact, state="read", facts=facts, bytes_read=remote.bytes_read)


def _read_source(
    artifact: Artifact, file: OfferedFile, client: HttpClient, *, download: bool
) -> Artifact:
    remote = RemoteFile(client, file.url)
    content = remote.read(remote.size) if download else b""
    digest = sha256(content) if content else file.sha256
    facts = Facts(
        sha256=digest,
        file=file.name,
        size=remote.size,
        name=artifact.distribution,
        version=artifact.version,
    )
    state: ArtifactState = "offered"
    if content and digest in artifact.hashes({}):
        state = "verified"
    return replace(artifact, state=state, facts=facts, bytes_read=len(content))


def _contradict(artifact: Artifact, kind: str, evidence: str, change: str) -> Artifact:
    """Return the artifact with only this contradiction."""
    contradiction = artifact.contradiction(kind, evidence, change)
    return replace(artifact, contradictions=(contradiction,))


def _add_contradictions(artifact: Artifact, locks: Mapping[str, Lock]) -> Artifact:
    contradictions = (*artifact.contradictions, *compare(artifact, locks))
    return replace(artifact, contradictions=contradictions)


def _list_contradictions(artifacts: Iterable[Artifact]) -> tuple[Contradiction, ...]:
    contradictions: list[Contradiction] = []
    for artifact in artifacts:
        contradictions += artifact.contradictions
    return tuple(contradictions)


def _offered_pythons(artifact: Artifact, page: Collection[str]) -> tuple[WheelTag, ...]:
    """Return the Pythons with wheels of the release, among those that matrix.yaml can name."""
    offered: list[WheelTag] = []
    for tag in get_args(WheelTag):
        wheel = replace(artifact, python_tag=tag)
        if any(map(wheel.fits, page)):
            offered.append(tag)
    return tuple(offered)


def _count_locked(locks: Mapping[str, Lock], projects: Iterable[str]) -> dict[str, int]:
    """Return the number of locks, and of their compared projects and hashes."""
    known = {*projects}
    names, hashes = set[str](), set[str]()
    for lock in locks.values():
        for name in known & lock.versions.keys():
            names.add(name)
            hashes.update(lock.hashes.get(name, ()))
    return {"locks": len(locks), "projects": len(names), "hashes": len(hashes)}
