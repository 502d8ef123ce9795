"""Find and remove imgbuild's images, build cache, and leftovers of killed runs."""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from imgbuild.adopt.adoption import OWN_TAGS
from imgbuild.build.context import image_locks
from imgbuild.build.image_build import TEMPORARY_NAMES
from imgbuild.core.errors import ImgbuildError
from imgbuild.core.files import abandoned_work, is_locked, lock_owner, remove_tree
from imgbuild.core.text import count_text
from imgbuild.dockerfile.labels import EXTENDS, NAME, REPOSITORY
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import Buildx, cache_size, empty_cache
from imgbuild.inputs.oci_layout import REPOSITORY as BASE_REPOSITORY
from imgbuild.inputs.oci_layout import short_id
from imgbuild.matrix.images import STANDIN_HOST
from imgbuild.plan.plan import labels_are_consistent, our_tags
from imgbuild.publish.upload import note_path, remove_left_tag
from imgbuild.suites.container import CONTAINER_LABEL, machine_digest
from imgbuild.suites.runner import folder_name
from imgbuild.suites.store import ReportStore

#: How long logs are kept, in seconds.
OLD = 30 * 24 * 3600
#: Maximum run time of mmdebstrap, in seconds. Its folders have no process id in their names, so
#: their age decides.
LONG = 3600
#: A folder of `scratch_folder` for a base image: user id, image, recipe digest, random characters.
_SCRATCH = re.compile(r"imgbuild-[0-9]+-[a-z0-9.-]+-[0-9a-f]{12}-[a-z0-9_]{8}")


class CleanupKind(StrEnum):
    LEFTOVERS = "leftovers"
    UNTAGGED = "untagged"
    WORK = "work"
    IMAGES = "images"
    BUILD_CACHE = "build-cache"


#: The kinds removed by default.
DEFAULT = frozenset({CleanupKind.LEFTOVERS, CleanupKind.UNTAGGED, CleanupKind.WORK})


@dataclass(frozen=True)
class Garbage:
    """Something that imgbuild created and can remove.

    - ``remove``: returns False if the thing is in use
    - ``size``: in bytes
    - ``since``: in seconds since 1970
    - ``image``: the image whose lock is needed to remove it; empty if it may belong to any image
    - ``blocked_by``: the reason why it must stay, if any
    """

    kind: CleanupKind
    name: str
    why: str
    remove: Callable[[], object]
    size: int = 0
    since: int | None = None
    image: str | None = None
    blocked_by: str | None = None

    def as_json(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in ("kind", "name", "why", "size", "since")}
        return {**facts, "kept": self.blocked_by}


def find_garbage(  # noqa: PLR0913 - the places to search
    engine: Engine | None,
    state: Path,
    cache: Path,
    *,
    elsewhere: bool = False,
    repository: str | None = None,
    builders: Sequence[Buildx | None] = (None,),
) -> tuple[Garbage, ...]:
    """Return everything that can be removed, in order of removal.

    ``engine`` must answer. ``state`` and ``cache`` are this user's folders. ``elsewhere`` includes
    leftovers of other state folders, whose locks are not visible, and images for another
    ``repository``. ``builders`` are the builders with a build cache; None means the engine's own.
    """
    findings: list[Garbage] = []
    if engine:
        findings += _find_leftovers(engine, state, elsewhere=elsewhere)
        findings += _find_images(engine, state, repository, elsewhere=elsewhere)
        findings += _find_adopted(engine, state, elsewhere=elsewhere)
    findings += _find_build_caches(engine, builders)
    findings += _find_work(state, cache)
    locks = state / "locks"
    return tuple(
        replace(finding, blocked_by=_lock_owner(finding.image, locks)) for finding in findings
    )


def remove_garbage(
    findings: Iterable[Garbage], engine: Engine | None, state: Path
) -> Iterator[Garbage]:
    """Remove the findings; yield each with ``blocked_by`` set if it could not be removed."""
    for finding in findings:
        problem = finding.blocked_by or _remove(finding, engine, state / "locks")
        yield replace(finding, blocked_by=problem)


def _remove(finding: Garbage, engine: Engine | None, locks: Path) -> str | None:
    """Remove a finding; return the reason if it could not be removed."""
    locked = [finding.image] if finding.image else []
    try:
        with image_locks(locked, engine.host if engine else None, locks):
            return "it is in use" if finding.remove() is False else None
    except (ImgbuildError, OSError) as error:
        return str(error)


def _lock_owner(image: str | None, locks: Path) -> str | None:
    """Return a text about the process that holds the image's lock, if any."""
    if image is None:
        return None
    for lock in sorted(locks.glob(f"*-{image}.lock" if image else "*.lock")):
        if is_locked(lock):
            return f"process {lock_owner(lock)} is working on it"
    return None


def _find_build_caches(
    engine: Engine | None, builders: Sequence[Buildx | None]
) -> Iterator[Garbage]:
    kind = CleanupKind.BUILD_CACHE
    for buildx in builders:
        if buildx and (used := cache_size(buildx)):
            name, remove = str(buildx.builder), partial(empty_cache, buildx)
            why = f"{used} of this builder; without it, the next builds repeat all steps"
            yield Garbage(kind, name, why, remove)
        elif not buildx and engine and (sizes := engine.build_cache()):
            why = "of all projects on this engine; without it, the next builds repeat all steps"
            name = count_text(len(sizes), "record")
            yield Garbage(kind, name, why, engine.empty_build_cache, sum(sizes))


def _find_leftovers(engine: Engine, state: Path, *, elsewhere: bool) -> Iterator[Garbage]:
    """Yield containers and networks of killed tests, and temporary tags of killed runs."""
    kind, own_place = CleanupKind.LEFTOVERS, machine_digest(state)
    for items, remove_item in (
        (engine.containers(CONTAINER_LABEL), engine.remove_container),
        (engine.networks(CONTAINER_LABEL), engine.remove_network),
    ):
        for item in items:
            image, _, place = item.labels[CONTAINER_LABEL].rpartition("@")
            image = folder_name(image)  # any image can have this label
            here = place == own_place
            if here or elsewhere:
                origin = "" if here else f", by another state folder ({place})"
                yield Garbage(
                    kind,
                    item.id[:12],
                    f"of a test of {image}{origin}",
                    partial(remove_item, item.id),
                    since=item.created or None,
                    image=image if here else None,
                )
    own_prefix = f"{TEMPORARY_NAMES}:{own_place}-"
    for stored in engine.find_named(TEMPORARY_NAMES):
        for name in stored.tags:
            if name.startswith(own_prefix):
                why = "temporary name of a build that was killed"
                yield Garbage(kind, name, why, partial(engine.untag, name), image="")
    notes = note_path(state, engine, "*").parent
    for note in sorted(notes.glob("*.json")):
        why = "temporary tag of a push that was killed"
        remove = partial(remove_left_tag, engine, note)
        since = int(note.stat().st_mtime)
        yield Garbage(kind, note.stem, why, remove, since=since, image=note.stem)


def _find_images(
    engine: Engine, state: Path, repository: str | None, *, elsewhere: bool
) -> Iterator[Garbage]:
    was_to_test = ReportStore(state / "reports").was_to_test
    for image in engine.images(NAME):
        names = our_tags(image)
        name = folder_name(image.labels[NAME])
        family = image.labels.get(REPOSITORY, "").removeprefix(STANDIN_HOST)
        foreign = repository not in {None, family}
        # An image with only foreign tags belongs to somebody else. An untagged image may
        # still wait for its tests.
        if (image.tags and not names) or not labels_are_consistent(image):
            continue
        if not elsewhere and (foreign or not (names or was_to_test(image.id))):
            continue
        kind, why = CleanupKind.UNTAGGED, "without a tag: it did not pass its tests"
        if names:
            kind, why = CleanupKind.IMAGES, "tagged by imgbuild"
        shown = ", ".join(names) or f"{short_id(image.id)} ({name})"
        remove = partial(_remove_image, engine, image.id, names)
        yield Garbage(kind, shown, why, remove, image.size, image=name)
    for base in engine.find_named(BASE_REPOSITORY):
        tags = [tag for tag in base.tags if tag.startswith(f"{BASE_REPOSITORY}:")]
        # The tags of bases that imgbuild made end with the id of the image.
        if any(tag.endswith(f"-{short_id(base.id)}") for tag in tags):
            why = "base image; made again when needed"
            remove = partial(_remove_image, engine, base.id, tags)
            yield Garbage(CleanupKind.IMAGES, ", ".join(tags), why, remove, base.size, image="")


def _find_adopted(engine: Engine, state: Path, *, elsewhere: bool) -> Iterator[Garbage]:
    """Yield the images whose names `imgbuild adopt` chose."""
    reports = ReportStore(state / "reports")
    for image in engine.images(EXTENDS):
        names = [tag for tag in image.tags if tag.startswith(OWN_TAGS)]
        if names and (elsewhere or reports.extension(image.id)):
            remove = partial(_remove_image, engine, image.id, names)
            why = "adopted; `imgbuild adopt` makes it again"
            lock = folder_name(names[0])
            yield Garbage(CleanupKind.IMAGES, ", ".join(names), why, remove, image.size, image=lock)


def _find_work(state: Path, cache: Path) -> Iterator[Garbage]:
    """Yield the folders that killed processes left, and all old logs as one item."""
    half_made = [
        path
        for path in cache.glob("*/.*.tmp-*")
        if not is_locked(path.with_name(f"{path.name.rpartition('.tmp-')[0]}.lock"))
    ]
    left = {*abandoned_work(state / "work"), *half_made, *_find_scratch_folders()}
    for path in sorted(left):
        yield _garbage_of(str(path), "its process was killed", [path])
    logs = (state / "logs").glob("*.log")
    if old := [path for path in logs if path.stat().st_mtime < time.time() - OLD]:
        name = f"{count_text(len(old), 'log')} in {old[0].parent}"
        yield _garbage_of(name, "older than 30 days", old)


def _garbage_of(name: str, why: str, paths: Sequence[Path]) -> Garbage:
    def remove() -> bool:
        for path in paths:
            remove_tree(path)
        return not any(path.exists() for path in paths)

    since = int(min(path.lstat().st_mtime for path in paths))
    size = sum(map(_disk_size, paths))
    return Garbage(CleanupKind.WORK, name, why, remove, size, since)


def _disk_size(path: Path) -> int:
    """Return the disk usage of a file or folder in bytes; hard links count once."""
    sizes: dict[tuple[int, int], int] = {}
    with suppress(OSError):  # it was removed in the meantime
        for file in (path, *path.rglob("*")):
            status = file.lstat()
            sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _find_scratch_folders() -> Iterator[Path]:
    for parent in {Path("/dev/shm"), Path(tempfile.gettempdir())}:  # noqa: S108 (read only)
        for path in parent.glob(f"imgbuild-{os.getuid()}-*"):
            status = path.lstat()
            ours = status.st_uid == os.getuid() and _SCRATCH.fullmatch(path.name)
            if ours and status.st_mtime < time.time() - LONG:
                yield path


def _remove_image(engine: Engine, image_id: str, tags: Sequence[str]) -> bool:
    """Remove the tags, and the image if no other tag is left; return False if it is in use."""
    if engine.in_use(image_id):
        return False
    for tag in tags:
        engine.untag(tag)
    # The layers stay if the image has another tag, or if another image is based on it.
    return engine.discard(image_id) or bool(tags)
