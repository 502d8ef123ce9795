"""``imgbuild audit --offline``: matrix and locks against the committed evidence. No network."""

import time
from collections.abc import Iterator, Mapping

from imgbuild.audit.compare import compare, row_contradiction
from imgbuild.audit.evidence import Evidence
from imgbuild.audit.facts import Contradiction, WheelFacts
from imgbuild.audit.needs import SdistNeed, WheelNeed
from imgbuild.audit.outcome import LocksOutcome, Outcome, SdistOutcome, WheelOutcome
from imgbuild.dockerfile.lockfile import Lock

_WRITE = "run `imgbuild audit --write` where the package index can be reached, and commit the file"


def audit_offline(
    wheels: tuple[WheelNeed, ...],
    sdists: tuple[SdistNeed, ...],
    locks: Mapping[str, Lock],
    evidence: Evidence,
) -> Outcome:
    """Return what of matrix and locks the evidence does not bear out."""
    begin = time.monotonic()
    chosen = [(need, _chosen(need, evidence, locks)) for need in wheels]
    found: list[Contradiction] = []
    for need, facts in chosen:
        found += compare(need, facts, locks) if facts else [_missing(need)]
    found += [c for need in sdists for c in _sdist(need, evidence)]
    return Outcome(
        tuple(_wheel_outcome(need, facts) for need, facts in chosen),
        tuple(_sdist_outcome(need, evidence) for need in sdists),
        LocksOutcome(len(locks)),
        (),
        tuple(found),
        (),
        0,
        time.monotonic() - begin,
    )


def _chosen(need: WheelNeed, evidence: Evidence, locks: Mapping[str, Lock]) -> WheelFacts | None:
    """Return the facts of the wheel that the locks name, else of any that fits the need."""
    candidates = evidence.wheels_for(need)
    hashes = {
        sha256
        for image in need.images
        if image.lock_name in locks
        for found in locks[image.lock_name].hashes.values()
        for sha256 in found
    }
    locked = [facts for facts in candidates if facts.sha256 in hashes]
    return next(iter([*locked, *candidates]), None)


def _missing(need: WheelNeed) -> Contradiction:
    evidence = f"images/evidence.json has no wheel of {need.subject} for {need.python_tag}"
    return row_contradiction(need, "evidence", evidence, _WRITE)


def _sdist(need: SdistNeed, evidence: Evidence) -> Iterator[Contradiction]:
    if evidence.sdist_for(need) is None:
        known = [facts.sha256 for facts in evidence.sdists if facts.version == need.version]
        has = f"has sha256 {known[0]}" if known else "has none of this version"
        place = ("horovod", need.version, "sha256")
        text = f"images/evidence.json {has}"
        yield Contradiction("evidence", need.subject, place, text, f"mend the sha256, or {_WRITE}")


def _wheel_outcome(need: WheelNeed, facts: WheelFacts | None) -> WheelOutcome:
    return WheelOutcome(need.distribution, need.version, "evidence" if facts else "missing", facts)


def _sdist_outcome(need: SdistNeed, evidence: Evidence) -> SdistOutcome:
    facts = evidence.sdist_for(need)
    return SdistOutcome(need.version, "evidence" if facts else "missing", facts)
