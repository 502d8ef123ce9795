"""Audit the pins: over the network, or against the committed evidence alone."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from imgbuild.audit.compare import (
    Contradiction,
    compare,
    compare_offline,
    known_wheel,
    release_place,
    row_contradiction,
)
from imgbuild.audit.evidence import Evidence, SdistFacts, WheelFacts
from imgbuild.audit.needs import SdistNeed, WheelNeed
from imgbuild.audit.package_index import (
    IndexAddress,
    IndexProject,
    OfferedFile,
    compare_locks,
    compare_sdist,
    read_project,
)
from imgbuild.audit.reachability import (
    InputState,
    OtherInput,
    check_input,
    check_inputs,
    compare_inputs,
)
from imgbuild.audit.wheels import RemoteFile, read_wheel
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.errors import MachineError
from imgbuild.http import HttpClient
from imgbuild.parallel import background, in_parallel
from imgbuild.sites import Sites

HOROVOD = "horovod"
_PAGES_AT_ONCE, _WHEELS_AT_ONCE = 8, 3

ArtifactState = Literal["read", "cached", "evidence", "offered", "verified", "missing", "unread"]


@dataclass(frozen=True)
class ArtifactOutcome:
    """One wheel or source distribution: how its facts came, or why there are none."""

    distribution: str
    version: str
    state: ArtifactState
    facts: WheelFacts | SdistFacts | None = None
    bytes_read: int = 0
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class LocksOutcome:
    """How much of the locks was compared with the index."""

    locks: int = 0
    projects: int = 0
    hashes: int = 0


@dataclass(frozen=True)
class AuditOutcome:
    """Everything. ``unread`` has a paragraph for each thing that could not be read."""

    wheels: tuple[ArtifactOutcome, ...]
    sdists: tuple[ArtifactOutcome, ...]
    locks: LocksOutcome
    inputs: tuple[InputState, ...]
    contradictions: tuple[Contradiction, ...]
    unread: tuple[str, ...]
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class Network:
    """What an audit reads from. ``inputs`` is the client for sites that may well be away."""

    client: HttpClient
    inputs: HttpClient
    index: IndexAddress
    sites: Sites
    log: Callable[[str], None] = lambda _: None


_Found = tuple[ArtifactOutcome, tuple[Contradiction, ...]]


def audit_offline(
    wheels: Sequence[WheelNeed],
    sdists: Sequence[SdistNeed],
    locks: Mapping[str, Lock],
    evidence: Evidence,
) -> AuditOutcome:
    """Return what of matrix and locks the evidence contradicts or lacks. Reads nothing."""
    begin = time.monotonic()
    found: list[_Found] = []
    needs: list[WheelNeed | SdistNeed] = [*wheels, *sdists]
    for need in needs:
        if isinstance(need, WheelNeed):
            name = need.distribution
            facts: WheelFacts | SdistFacts | None = known_wheel(need, evidence, locks)
        else:
            name, facts = HOROVOD, evidence.sdist(need.sha256)
        state: ArtifactState = "evidence" if facts else "missing"
        outcome = ArtifactOutcome(name, need.version, state, facts)
        contradictions = (*compare_offline(need, facts, evidence), *_compared(need, facts, locks))
        found.append((outcome, contradictions))
    return AuditOutcome(
        tuple(outcome for outcome, _ in found[: len(wheels)]),
        tuple(outcome for outcome, _ in found[len(wheels) :]),
        LocksOutcome(len(locks)),
        (),
        tuple(one for _, contradictions in found for one in contradictions),
        (),
        0,
        time.monotonic() - begin,
    )


def _compared(
    need: WheelNeed | SdistNeed, facts: WheelFacts | SdistFacts | None, locks: Mapping[str, Lock]
) -> tuple[Contradiction, ...]:
    if isinstance(need, WheelNeed) and isinstance(facts, WheelFacts):
        return compare(need, facts, locks)
    return ()


def audit_online(  # noqa: PLR0913, PLR0917 - what is compared with what
    network: Network,
    wheels: Sequence[WheelNeed],
    sdists: Sequence[SdistNeed],
    locks: Mapping[str, Lock],
    others: Sequence[OtherInput],
    known: Evidence,
    *,
    download: bool = False,
) -> AuditOutcome:
    """Return what of matrix and locks the artifacts themselves contradict.

    A wheel whose content is in ``known`` is not read again.

    Raises:
        MachineError: the package index does not answer at all.

    """
    begin = time.monotonic()
    states_answer = background(
        partial(check_inputs, network.inputs, others, network.sites, download=download)
    )
    names = [need.distribution for need in wheels]
    names += [HOROVOD, *sorted({name for lock in locks.values() for name in lock.versions})]
    pages = _read_pages(network, names)
    projects = {name: page for name, page in pages.items() if isinstance(page, IndexProject)}
    unread = [page for page in pages.values() if isinstance(page, str)]
    read = in_parallel(
        lambda need: _audit_wheel(network, need, pages, locks, known), wheels, _WHEELS_AT_ONCE
    )
    horovod = in_parallel(
        lambda need: _audit_sdist(network, need, pages, download), sdists, _WHEELS_AT_ONCE
    )
    states = tuple(states_answer.result())
    outcomes = [outcome for outcome, _ in (*read, *horovod)]
    found = [one for _, contradictions in (*read, *horovod) for one in contradictions]
    return AuditOutcome(
        tuple(outcome for outcome, _ in read),
        tuple(outcome for outcome, _ in horovod),
        _extent(locks, projects),
        states,
        (*found, *compare_locks(locks, projects), *compare_inputs(states)),
        tuple(dict.fromkeys([*unread, *(one.problem for one in outcomes if one.problem)])),
        sum(one.bytes_read for one in outcomes) + sum(one.bytes_read for one in states),
        time.monotonic() - begin,
    )


def _read_pages(network: Network, names: Iterable[str]) -> dict[str, IndexProject | str]:
    """Return each project, or why it could not be read: one page, then all others at once."""
    index = network.index

    def page(name: str) -> IndexProject | str:
        try:
            return read_project(network.client, index, name)
        except MachineError as error:
            return str(error)

    first, *rest = dict.fromkeys(names)
    pages = {first: page(first)}
    if isinstance(pages[first], str):
        raise MachineError(
            f"The Python package index ({index.named_by}) cannot be reached: {pages[first]} "
            "`imgbuild audit --offline` compares with images/evidence.json alone."
        )
    pages |= dict(zip(rest, in_parallel(page, rest, _PAGES_AT_ONCE), strict=True))
    if not any(isinstance(one, IndexProject) and one.files for one in pages.values()):
        raise MachineError(
            f"What {index.named_by} names has none of the {len(pages)} projects of the matrix. Is "
            "it a Python package index (its address usually ends in /simple)?"
        )
    return pages


def _audit_wheel(
    network: Network,
    need: WheelNeed,
    pages: Mapping[str, IndexProject | str],
    locks: Mapping[str, Lock],
    known: Evidence,
) -> _Found:
    """Return how one wheel was found, and what contradicts it."""
    name, version, project = need.distribution, need.version, pages[need.distribution]
    if isinstance(project, str):
        return ArtifactOutcome(name, version, "unread", problem=project), ()
    fitting = [file for file in project.files.values() if need.fits(file.name)]
    file = max(fitting, key=lambda one: one.name, default=None)  # the newest platform tag
    if file is None:
        evidence = f"the index has no wheel of it for {need.python_tag} on Linux x86-64"
        change = "pin a version or a Python that has one"
        if not project.files:
            evidence = f"the index has no project {need.distribution}"
            change = "name a distribution that exists"
        missing = row_contradiction(need, "missing", evidence, change)
        return ArtifactOutcome(name, version, "missing"), (missing,)
    found = _pythons(need, project)
    if file.yanked:
        evidence = f"{file.name} was withdrawn: {file.yanked}"
        found.append(row_contradiction(need, "yanked", evidence, "pin another release"))
    outcome = _wheel_outcome(network, need, file, known)
    return outcome, (*found, *_compared(need, outcome.facts, locks))


def _wheel_outcome(
    network: Network, need: WheelNeed, file: OfferedFile, known: Evidence
) -> ArtifactOutcome:
    cached = known.wheel(file.sha256)
    if cached:
        return ArtifactOutcome(need.distribution, need.version, "cached", cached)
    begin = time.monotonic()
    try:
        remote = RemoteFile(network.client, file.url)
        facts = read_wheel(remote, file.name, file.sha256)
    except MachineError as error:
        network.log(f"{need.subject}: not read")
        return ArtifactOutcome(need.distribution, need.version, "unread", problem=str(error))
    seconds = time.monotonic() - begin
    amount = f"{remote.bytes_read / 1e6:.1f} MB of {remote.size / 1e6:.0f} MB"
    network.log(f"{need.subject}: {amount} in {seconds:.1f} s")
    return ArtifactOutcome(
        need.distribution, need.version, "read", facts, remote.bytes_read, seconds
    )


def _pythons(need: WheelNeed, project: IndexProject) -> list[Contradiction]:
    """Compare the Pythons that the matrix says there are wheels for, among those it may say."""
    needs = [replace(need, python_tag=tag) for tag in ("cp36", "cp37", "cp38")]
    offered = [one.python_tag for one in needs if any(map(one.fits, project.files))]
    image = need.images[0]
    if set(offered) == set(image.wheel.pythons):
        return []
    evidence = f"the index has wheels of it for {' '.join(offered)}"
    place, change = release_place(image, "pythons"), f"write [{', '.join(offered)}]"
    return [Contradiction("pythons", need.subject, place, evidence, change)]


def _audit_sdist(
    network: Network, need: SdistNeed, pages: Mapping[str, IndexProject | str], download: bool
) -> _Found:
    """Return how one source distribution was found, and what contradicts it."""
    project = pages[HOROVOD]
    if isinstance(project, str):
        return ArtifactOutcome(HOROVOD, need.version, "unread", problem=project), ()
    found = tuple(compare_sdist(need, project))
    file = project.files.get(need.file)
    if file is None:
        return ArtifactOutcome(HOROVOD, need.version, "missing"), found
    try:
        size = file.size or RemoteFile(network.client, file.url).size
    except MachineError as error:
        return ArtifactOutcome(HOROVOD, need.version, "unread", problem=str(error)), found
    facts = SdistFacts(file.sha256, file.name, size, HOROVOD, need.version)
    if not download:
        return ArtifactOutcome(HOROVOD, need.version, "offered", facts), found
    item = OtherInput(need.subject, file.url, need.sha256, ("horovod", need.version, "sha256"))
    got = check_input(network.client, item, network.sites, download=True)
    state: ArtifactState = "verified" if got.state == "verified" else "offered"
    problem = f"{file.name}: {got.detail}." if got.state not in {"verified", "differs"} else ""
    outcome = ArtifactOutcome(
        HOROVOD, need.version, "unread" if problem else state, facts, got.bytes_read, got.seconds,
        problem,
    )  # fmt: skip
    return outcome, (*found, *compare_inputs([got]))


def _extent(locks: Mapping[str, Lock], projects: Mapping[str, IndexProject]) -> LocksOutcome:
    compared = [
        (name, sha256)
        for lock in locks.values()
        for name, hashes in lock.hashes.items()
        if name in projects
        for sha256 in hashes
    ]
    hashes = {sha256 for _, sha256 in compared}
    return LocksOutcome(len(locks), len({name for name, _ in compared}), len(hashes))
