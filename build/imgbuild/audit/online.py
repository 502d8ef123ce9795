"""The audit over the network: pages of the index, then wheels by range, and the rest beside."""

import time
from collections.abc import Mapping

from imgbuild.audit.artifacts import HOROVOD, audit_sdist, audit_wheel
from imgbuild.audit.needs import SdistNeed, WheelNeed
from imgbuild.audit.other_inputs import OtherInput, compare_inputs, look_at_all
from imgbuild.audit.outcome import LocksOutcome, Outcome, SdistOutcome, WheelOutcome
from imgbuild.audit.packages import compare_locks, locked_projects
from imgbuild.audit.pages import Pages, read_pages
from imgbuild.audit.sources import Sources
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.parallel import background, in_parallel

_WORKERS = 3


def audit_online(
    sources: Sources,
    wheels: tuple[WheelNeed, ...],
    sdists: tuple[SdistNeed, ...],
    locks: Mapping[str, Lock],
    others: tuple[OtherInput, ...],
) -> Outcome:
    """Return what of matrix and locks the artifacts themselves do not bear out.

    Raises:
        UnreachableError: the package index does not answer at all.

    """
    begin = time.monotonic()
    asked = background(lambda: look_at_all(sources.inputs, others, download=sources.download))
    names = [*(need.distribution for need in wheels), HOROVOD, *locked_projects(locks)]
    pages = read_pages(sources, names)
    read = in_parallel(lambda n: audit_wheel(sources, n, pages, locks), wheels, _WORKERS)
    horovod = in_parallel(lambda n: audit_sdist(sources, n, pages), sdists, _WORKERS)
    found = [c for _, contradictions in (*read, *horovod) for c in contradictions]
    states = tuple(asked.result())
    outcomes: list[WheelOutcome | SdistOutcome] = [
        *(wheel for wheel, _ in read),
        *(sdist for sdist, _ in horovod),
    ]
    problems = (outcome.problem for outcome in outcomes if outcome.problem)
    return Outcome(
        tuple(outcome for outcome, _ in read),
        tuple(outcome for outcome, _ in horovod),
        _extent(locks, pages),
        states,
        (*found, *compare_locks(locks, pages.projects), *compare_inputs(states)),
        tuple(dict.fromkeys([*pages.unread.values(), *problems])),
        sources.client.bytes_read + sum(state.bytes_read for state in states),
        time.monotonic() - begin,
    )


def _extent(locks: Mapping[str, Lock], pages: Pages) -> LocksOutcome:
    known = [(lock, name) for lock in locks.values() for name in lock.hashes]
    compared = [lock.hashes[name] for lock, name in known if name in pages.projects]
    projects = {name for _, name in known if name in pages.projects}
    return LocksOutcome(len(locks), len(projects), len({h for some in compared for h in some}))
