"""One artifact of the index: offered, read where it must be, compared."""

import time
from collections.abc import Mapping
from dataclasses import replace

from imgbuild.audit.compare import compare, row_contradiction
from imgbuild.audit.facts import Contradiction
from imgbuild.audit.failure import ReadError
from imgbuild.audit.needs import SdistNeed, WheelNeed, choose_wheel
from imgbuild.audit.other_inputs import OtherInput, look_at
from imgbuild.audit.outcome import SdistOutcome, WheelOutcome
from imgbuild.audit.packages import compare_sdist, sdist_facts
from imgbuild.audit.pages import Pages
from imgbuild.audit.places import release_place
from imgbuild.audit.project_page import OfferedFile, Project
from imgbuild.audit.ranges import RangeReader
from imgbuild.audit.remote_wheel import RemoteWheel
from imgbuild.audit.sources import Sources
from imgbuild.audit.wheel_facts import read_facts
from imgbuild.dockerfile.lockfile import Lock

HOROVOD = "horovod"


def audit_wheel(
    sources: Sources, need: WheelNeed, pages: Pages, locks: Mapping[str, Lock]
) -> tuple[WheelOutcome, tuple[Contradiction, ...]]:
    """Return how one wheel was found, and what contradicts it."""
    if need.distribution not in pages.projects:
        problem = pages.unread[need.distribution]
        return WheelOutcome(need.distribution, need.version, "unread", problem=problem), ()
    project = pages.projects[need.distribution]
    file = choose_wheel(need, project.files.values())
    if file is None:
        missing = WheelOutcome(need.distribution, need.version, "missing")
        return missing, (_not_offered(need, project),)
    outcome = _facts(sources, need, file)
    found = [*_withdrawn(need, file), *_pythons(need, project)]
    if outcome.facts:
        found += compare(need, outcome.facts, locks)
    return outcome, tuple(found)


def _not_offered(need: WheelNeed, project: Project) -> Contradiction:
    if not project.files:
        evidence = f"the index has no project {need.distribution}"
        return row_contradiction(need, "missing", evidence, "name a distribution that exists")
    evidence = f"the index has no wheel of it for {need.python_tag} on Linux x86-64"
    return row_contradiction(need, "missing", evidence, "pin a version or a Python that has one")


def _withdrawn(need: WheelNeed, file: OfferedFile) -> list[Contradiction]:
    if not file.yanked:
        return []
    evidence = f"{file.name} was withdrawn: {file.yanked}"
    return [row_contradiction(need, "yanked", evidence, "pin another release")]


def _pythons(need: WheelNeed, project: Project) -> list[Contradiction]:
    """Compare the Pythons that the matrix says there are wheels for, among those it may say."""
    names = list(project.files)
    needs = {tag: replace(need, python_tag=tag) for tag in ("cp36", "cp37", "cp38")}
    offered = [tag for tag, one in needs.items() if any(map(one.fits, names))]
    image = need.images[0]
    if set(offered) == set(image.wheel.pythons):
        return []
    evidence = f"the index has wheels of it for {' '.join(offered)}"
    change = f"write [{', '.join(offered)}]"
    place = release_place(image, "pythons")
    return [Contradiction("pythons", need.subject, place, evidence, change)]


def _facts(sources: Sources, need: WheelNeed, file: OfferedFile) -> WheelOutcome:
    name, version = need.distribution, need.version
    cached = None if sources.refresh else sources.cache.get(file.sha256)
    if cached:
        sources.progress.finished(f"{need.subject}: read before")
        return WheelOutcome(name, version, "cached", cached)
    begin = time.monotonic()
    try:
        reader = RangeReader(sources.client, file.url, sources.progress.arrived)
        facts = read_facts(RemoteWheel(reader), file.name, file.sha256)
    except ReadError as error:
        sources.progress.finished(f"{need.subject}: not read")
        return WheelOutcome(name, version, "unread", problem=str(error))
    if file.size not in {None, reader.size}:
        problem = f"{file.name} has {reader.size} bytes; the index says {file.size}."
        return WheelOutcome(name, version, "unread", problem=problem)
    sources.cache.put(facts)
    seconds = time.monotonic() - begin
    megabytes = f"{reader.bytes_read / 1e6:.1f} MB of {reader.size / 1e6:.0f} MB"
    sources.progress.finished(f"{need.subject}: {megabytes} in {seconds:.1f} s")
    return WheelOutcome(name, version, "read", facts, reader.bytes_read, seconds)


def audit_sdist(
    sources: Sources, need: SdistNeed, pages: Pages
) -> tuple[SdistOutcome, tuple[Contradiction, ...]]:
    """Return how one source distribution was found, and what contradicts it."""
    if HOROVOD not in pages.projects:
        return SdistOutcome(need.version, "unread", problem=pages.unread[HOROVOD]), ()
    project = pages.projects[HOROVOD]
    facts = sdist_facts(need, project)
    found = tuple(compare_sdist(need, project))
    if facts is None:
        return SdistOutcome(need.version, "missing"), found
    file = project.files[facts.file]
    try:
        facts = replace(facts, size=facts.size or RangeReader(sources.client, file.url).size)
    except ReadError as error:
        return SdistOutcome(need.version, "unread", facts, problem=str(error)), found
    if not sources.download:
        return SdistOutcome(need.version, "offered", facts), found
    outcome, differs = _downloaded(sources, need, file)
    return replace(outcome, facts=facts), (*found, *differs)


def _downloaded(
    sources: Sources, need: SdistNeed, file: OfferedFile
) -> tuple[SdistOutcome, tuple[Contradiction, ...]]:
    item = OtherInput(file.name, file.url, need.sha256)
    got = look_at(sources.client, item, download=True)
    outcome = SdistOutcome(need.version, "verified", None, got.bytes_read, got.seconds)
    sources.client.count(got.bytes_read)
    if got.state == "verified":
        return outcome, ()
    if got.state != "differs":
        problem = f"{file.name}: {got.state}: {got.detail}."
        return replace(outcome, state="unread", problem=problem), ()
    evidence, change = f"its content has {got.detail}", "do not build from it; ask its authors"
    place = ("horovod", need.version, "sha256")
    wrong = Contradiction("sha256", need.subject, place, evidence, change)
    return replace(outcome, state="offered"), (wrong,)
