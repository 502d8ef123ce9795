"""Audit the pins: over the network, or against the committed evidence alone."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from imgbuild.audit.compare import (
    Contradiction,
    compare,
    known_wheel,
    lacking,
    release_place,
    row_contradiction,
)
from imgbuild.audit.facts import Evidence, Facts, Pins, SdistFacts, SdistNeed, WheelFacts, WheelNeed
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
from imgbuild.settings import Sites

HOROVOD = "horovod"
_PAGES_AT_ONCE, _WHEELS_AT_ONCE = 8, 3

ArtifactState = Literal["read", "cached", "evidence", "offered", "verified", "missing", "unread"]


@dataclass(frozen=True)
class ArtifactOutcome:
    """One wheel or source distribution: how its facts came, or why there are none."""

    distribution: str
    version: str
    state: ArtifactState
    facts: Facts | None = None
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


def audit_offline(pins: Pins, evidence: Evidence) -> AuditOutcome:
    """Return what of the pins the evidence contradicts or lacks. Reads nothing."""
    begin = time.monotonic()
    wheels, sdists = [], []
    found: list[Contradiction] = []
    for need in pins.wheels:
        facts = known_wheel(need, evidence, pins.locks)
        wheels.append(_outcome(need, "evidence" if facts else "missing", facts))
        found += compare(need, facts, pins.locks) if facts else [lacking(need, evidence)]
    for sdist in pins.sdists:
        known = evidence.find(sdist.sha256)
        sdists.append(_outcome(sdist, "evidence" if known else "missing", known))
        found += [] if known else [lacking(sdist, evidence)]
    locks, seconds = LocksOutcome(len(pins.locks)), time.monotonic() - begin
    return AuditOutcome(tuple(wheels), tuple(sdists), locks, (), tuple(found), (), 0, seconds)


def _outcome(
    need: WheelNeed | SdistNeed,
    state: ArtifactState,
    facts: Facts | None = None,
    problem: object = "",
) -> ArtifactOutcome:
    name, version = need.distribution, need.version
    return ArtifactOutcome(name, version, state, facts, problem=str(problem))


_Found = tuple[ArtifactOutcome, tuple[Contradiction, ...]]


@dataclass(frozen=True)
class OnlineAudit:
    """What an audit reads from; a wheel whose content is in ``known`` is not read again.

    ``inputs`` is the client for sites that may well be away.
    """

    client: HttpClient
    inputs: HttpClient
    index: IndexAddress
    sites: Sites
    known: Evidence
    download: bool = False
    log: Callable[[str], None] = lambda _: None

    def run(self, pins: Pins, others: Sequence[OtherInput]) -> AuditOutcome:
        """Return what of the pins the artifacts themselves contradict.

        Raises:
            MachineError: the package index does not answer at all.

        """
        begin = time.monotonic()
        states_answer = background(
            partial(check_inputs, self.inputs, others, self.sites, download=self.download)
        )
        names = [need.distribution for need in pins.wheels]
        names += [
            HOROVOD,
            *sorted({name for lock in pins.locks.values() for name in lock.versions}),
        ]
        pages = self._pages(names)
        projects = {name: page for name, page in pages.items() if isinstance(page, IndexProject)}
        wheels = in_parallel(
            lambda need: self._wheel(need, pages[need.distribution], pins.locks),
            pins.wheels,
            _WHEELS_AT_ONCE,
        )
        sdists = in_parallel(
            lambda need: self._sdist(need, pages[HOROVOD]), pins.sdists, _WHEELS_AT_ONCE
        )
        states = tuple(states_answer.result())
        outcomes = [outcome for outcome, _ in (*wheels, *sdists)]
        found = [one for _, contradictions in (*wheels, *sdists) for one in contradictions]
        unread = [page for page in pages.values() if isinstance(page, str)]
        return AuditOutcome(
            tuple(outcome for outcome, _ in wheels),
            tuple(outcome for outcome, _ in sdists),
            _extent(pins.locks, projects),
            states,
            (*found, *compare_locks(pins.locks, projects), *compare_inputs(states)),
            tuple(dict.fromkeys([*unread, *(one.problem for one in outcomes if one.problem)])),
            sum(one.bytes_read for one in outcomes) + sum(one.bytes_read for one in states),
            time.monotonic() - begin,
        )

    def _pages(self, names: Iterable[str]) -> dict[str, IndexProject | str]:
        """Return each project, or why it could not be read: one page, then all others at once."""

        def page(name: str) -> IndexProject | str:
            try:
                return read_project(self.client, self.index, name)
            except MachineError as error:
                return str(error)

        first, *rest = dict.fromkeys(names)
        pages = {first: page(first)}
        if isinstance(pages[first], str):
            raise MachineError(
                f"The Python package index ({self.index.named_by}) cannot be reached: "
                f"{pages[first]} `imgbuild audit --offline` compares with images/evidence.json "
                "alone."
            )
        pages |= dict(zip(rest, in_parallel(page, rest, _PAGES_AT_ONCE), strict=True))
        if not any(isinstance(one, IndexProject) and one.files for one in pages.values()):
            raise MachineError(
                f"What {self.index.named_by} names has none of the {len(pages)} projects of the "
                "matrix. Is it a Python package index (its address usually ends in /simple)?"
            )
        return pages

    def _wheel(
        self, need: WheelNeed, project: IndexProject | str, locks: Mapping[str, Lock]
    ) -> _Found:
        """Return how one wheel was found, and what contradicts it."""
        if isinstance(project, str):
            return _outcome(need, "unread", problem=project), ()
        fitting = [file for file in project.files.values() if need.fits(file.name)]
        file = max(fitting, key=lambda one: one.name, default=None)  # the newest platform tag
        if file is None:
            evidence = f"the index has no wheel of it for {need.python_tag} on Linux x86-64"
            change = "pin a version or a Python that has one"
            if not project.files:
                evidence = f"the index has no project {need.distribution}"
                change = "name a distribution that exists"
            missing = row_contradiction(need, "missing", evidence, change)
            return _outcome(need, "missing"), (missing,)
        found = _pythons(need, project)
        if file.yanked:
            evidence = f"{file.name} was withdrawn: {file.yanked}"
            found.append(row_contradiction(need, "yanked", evidence, "pin another release"))
        outcome = self._read(need, file)
        if isinstance(outcome.facts, WheelFacts):
            found += compare(need, outcome.facts, locks)
        return outcome, tuple(found)

    def _read(self, need: WheelNeed, file: OfferedFile) -> ArtifactOutcome:
        cached = self.known.find(file.sha256)
        if cached:
            return _outcome(need, "cached", cached)
        begin = time.monotonic()
        try:
            remote = RemoteFile(self.client, file.url)
            facts = read_wheel(remote, file.name, file.sha256)
        except MachineError as error:
            self.log(f"{need.subject}: not read")
            return _outcome(need, "unread", problem=error)
        seconds = time.monotonic() - begin
        amount = f"{remote.bytes_read / 1e6:.1f} MB of {remote.size / 1e6:.0f} MB"
        self.log(f"{need.subject}: {amount} in {seconds:.1f} s")
        return replace(_outcome(need, "read", facts), bytes_read=remote.bytes_read, seconds=seconds)

    def _sdist(self, need: SdistNeed, project: IndexProject | str) -> _Found:
        """Return how one source distribution was found, and what contradicts it."""
        if isinstance(project, str):
            return _outcome(need, "unread", problem=project), ()
        found = tuple(compare_sdist(need, project))
        file = project.files.get(need.file)
        if file is None:
            return _outcome(need, "missing"), found
        try:
            size = RemoteFile(self.client, file.url).size
        except MachineError as error:
            return _outcome(need, "unread", problem=error), found
        facts = SdistFacts(file.sha256, file.name, size, HOROVOD, need.version)
        if not self.download:
            return _outcome(need, "offered", facts), found
        item = OtherInput(need.subject, file.url, need.sha256, ("horovod", need.version, "sha256"))
        got = check_input(self.client, item, self.sites, download=True)
        outcome = _outcome(need, "verified" if got.state == "verified" else "offered", facts)
        if got.state not in {"verified", "differs"}:
            outcome = _outcome(need, "unread", facts, f"{file.name}: {got.detail}.")
        outcome = replace(outcome, bytes_read=got.bytes_read, seconds=got.seconds)
        return outcome, (*found, *compare_inputs([got]))


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


def _extent(locks: Mapping[str, Lock], projects: Mapping[str, IndexProject]) -> LocksOutcome:
    compared = {
        (name, sha256)
        for lock in locks.values()
        for name, hashes in lock.hashes.items()
        if name in projects
        for sha256 in hashes
    }
    hashes = {sha256 for _, sha256 in compared}
    return LocksOutcome(len(locks), len({name for name, _ in compared}), len(hashes))
