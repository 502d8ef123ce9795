"""Horovod and the locks against the index: every file still offered, none withdrawn."""

from collections.abc import Iterator, Mapping

from packaging.utils import canonicalize_name

from imgbuild.audit.facts import Contradiction, SdistFacts
from imgbuild.audit.needs import SdistNeed
from imgbuild.audit.project_page import OfferedFile, Project
from imgbuild.dockerfile.lockfile import Lock


def sdist_facts(need: SdistNeed, project: Project) -> SdistFacts | None:
    """Return the source distribution that the index offers, if it does."""
    file = _sdist(need, project)
    return SdistFacts(file.sha256, file.name, file.size, "horovod", need.version) if file else None


def _sdist(need: SdistNeed, project: Project) -> OfferedFile | None:
    return project.files.get(f"horovod-{need.version}.tar.gz")


def compare_sdist(need: SdistNeed, project: Project) -> Iterator[Contradiction]:
    """Yield what of a Horovod pin does not agree with the index."""
    file = _sdist(need, project)
    if file is None:
        listed = "offers no such source distribution" if project.files else "has no such project"
        yield _horovod(need, "missing", f"the index {listed}", "pin a version that is offered")
        return
    if file.sha256 != need.sha256:
        evidence = f"{file.name} has sha256 {file.sha256}"
        change = f"the matrix has {need.sha256}: find out which of them the authors released"
        yield _horovod(need, "sha256", evidence, change)
    if file.yanked:
        yield _horovod(need, "yanked", f"withdrawn: {file.yanked}", "pin another release")


def _horovod(need: SdistNeed, kind: str, evidence: str, change: str) -> Contradiction:
    place = ("horovod", need.version, "sha256") if kind == "sha256" else ("horovod", need.version)
    return Contradiction(kind, need.subject, place, evidence, change)


def locked_projects(locks: Mapping[str, Lock]) -> tuple[str, ...]:
    """Return the names of all packages in the locks, sorted."""
    return tuple(sorted({name for lock in locks.values() for name in lock.versions}))


def compare_locks(
    locks: Mapping[str, Lock], projects: Mapping[str, Project]
) -> tuple[Contradiction, ...]:
    """Return what of the locks the index no longer offers, or has withdrawn.

    A project that is not in ``projects`` could not be read and is passed over.
    """
    found = [
        contradiction
        for file_name, lock in locks.items()
        for name in lock.versions
        if name in projects
        for contradiction in _package(file_name, lock, name, projects[canonicalize_name(name)])
    ]
    return tuple(found)


def _package(file_name: str, lock: Lock, name: str, project: Project) -> Iterator[Contradiction]:
    subject, place = f"{name} {lock.versions[name]}", f"images/locks/{file_name}"
    again = "run `imgbuild lock --upgrade`, or pin another version in matrix.yaml"
    files = {sha256: project.by_sha256(sha256) for sha256 in lock.hashes[name]}
    gone = [sha256 for sha256, file in files.items() if file is None]
    yanked = [file for file in files.values() if file and file.yanked]
    if not project.files:
        yield Contradiction("missing", subject, place, "the index has no such project", again)
    elif gone:
        evidence = f"{len(gone)} of {len(files)} files are no longer offered: sha256 {gone[0]}"
        yield Contradiction("gone", subject, place, f"{evidence}{' …' * (len(gone) > 1)}", again)
    if yanked:
        evidence = f"{yanked[0].name} was withdrawn: {yanked[0].yanked}"
        yield Contradiction("yanked", subject, place, evidence, again)
