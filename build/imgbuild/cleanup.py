"""Find and remove what imgbuild leaves on this machine: images, build cache, killed runs."""

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

from imgbuild.build.context import image_locks
from imgbuild.build.image_build import TEMPORARY_NAMES
from imgbuild.dockerfile.labels import NAME, REPOSITORY
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import Buildx, cache_size, empty_cache
from imgbuild.errors import ImgbuildError
from imgbuild.files import abandoned_work, is_locked, lock_owner, remove_tree
from imgbuild.inputs.oci_layout import REPOSITORY as BASE_REPOSITORY
from imgbuild.inputs.oci_layout import short_id
from imgbuild.matrix.images import STANDIN_HOST
from imgbuild.plan.plan import has_own_labels, own_names
from imgbuild.publish.upload import note_of, remove_left_tag
from imgbuild.suites.container import CONTAINER_LABEL, place_of
from imgbuild.suites.results import ReportStore
from imgbuild.suites.runner import folder_name
from imgbuild.text import counted

#: How long logs are kept, in seconds.
OLD = 30 * 24 * 3600
#: The longest that mmdebstrap works, in seconds: the name of its folder has no process id.
LONG = 3600
#: A folder of `scratch_folder` for a base image: user id, image, digest of its recipe, 8 at random.
_SCRATCH = re.compile(r"imgbuild-[0-9]+-[a-z0-9.-]+-[0-9a-f]{12}-[a-z0-9_]{8}")


class CleanupKind(StrEnum):
    LEFTOVERS = "leftovers"
    UNTAGGED = "untagged"
    WORK = "work"
    IMAGES = "images"
    BUILD_CACHE = "build-cache"


#: What is removed by default.
DEFAULT = frozenset({CleanupKind.LEFTOVERS, CleanupKind.UNTAGGED, CleanupKind.WORK})


@dataclass(frozen=True)
class Garbage:
    """Something that imgbuild made. ``size`` is in bytes, ``since`` in seconds since 1970.

    ``remove`` returns False where somebody has begun to use it. ``image`` is the image of the
    matrix whose lock removing it needs; empty for something of any image. ``kept`` is why it must
    stay, if it must.
    """

    kind: CleanupKind
    name: str
    why: str
    remove: Callable[[], object]
    size: int = 0
    since: int | None = None
    image: str | None = None
    kept: str | None = None

    def as_json(self) -> dict[str, Any]:
        shown = ("kind", "name", "why", "size", "since", "kept")
        return {name: getattr(self, name) for name in shown}


@dataclass(frozen=True)
class Cleanup:
    """Where to look: an engine, if one answers, and this user's state and cache folders.

    ``elsewhere`` includes what other state folders left on the engine, whose locks are not visible,
    and images that were built for another ``repository``. ``builders`` are those whose build cache
    counts; None in it is the engine's own.
    """

    engine: Engine | None
    state: Path
    cache: Path
    elsewhere: bool = False
    repository: str | None = None
    builders: tuple[Buildx | None, ...] = (None,)

    def find(self) -> tuple[Garbage, ...]:
        """Return all that can be removed, in the order of removing."""
        return tuple(replace(one, kept=self._busy(one.image)) for one in self._found())

    def remove(self, findings: Iterable[Garbage]) -> Iterator[Garbage]:
        """Remove the findings and yield each as it then is: ``kept`` says why it is still there."""
        for finding in findings:
            yield replace(finding, kept=finding.kept or self._removed(finding))

    def _removed(self, finding: Garbage) -> str | None:
        locked = [finding.image] if finding.image else []
        host = self.engine.host if self.engine else None
        try:
            with image_locks(locked, host, self.state / "locks"):
                return "it is in use" if finding.remove() is False else None
        except (ImgbuildError, OSError) as error:
            return str(error)

    def _busy(self, image: str | None) -> str | None:
        """Return why something of an image must stay: a process holds its lock."""
        if image is None:
            return None
        for lock in sorted((self.state / "locks").glob(f"*-{image}.lock" if image else "*.lock")):
            if is_locked(lock):
                return f"process {lock_owner(lock)} is at work on it"
        return None

    def _found(self) -> Iterator[Garbage]:
        if self.engine:
            yield from self._leftovers(self.engine)
            yield from self._images(self.engine)
        yield from self._build_caches()
        yield from self._work()

    def _build_caches(self) -> Iterator[Garbage]:
        kind, host = CleanupKind.BUILD_CACHE, self.engine.host if self.engine else None
        for buildx in self.builders:
            if buildx and (used := cache_size(buildx, host)):
                name, remove = str(buildx.builder), partial(empty_cache, buildx, host)
                why = f"{used} of this builder; its next builds start from nothing"
                yield Garbage(kind, name, why, remove)
            elif not buildx and self.engine and (sizes := self.engine.build_cache()):
                why = "of every project on this engine; the next builds start from nothing"
                name, emptied = counted(len(sizes), "record"), self.engine.empty_build_cache
                yield Garbage(kind, name, why, emptied, sum(sizes))

    def _leftovers(self, engine: Engine) -> Iterator[Garbage]:
        """Yield containers and networks of killed tests, and temporary names of killed runs."""
        kind = CleanupKind.LEFTOVERS
        for found, act in (
            (engine.containers(CONTAINER_LABEL), engine.remove_container),
            (engine.networks(CONTAINER_LABEL), engine.remove_network),
        ):
            for one in found:
                image, _, place = one.labels[CONTAINER_LABEL].rpartition("@")
                image = folder_name(image)  # any image can have this label
                here = place == place_of(self.state)
                why = f"of a test of {image}"
                why += "" if here else f", by another state folder ({place})"
                remove, since, lock = partial(act, one.id), one.created, image if here else None
                if here or self.elsewhere:
                    yield Garbage(kind, one.id[:12], why, remove, since=since or None, image=lock)
        mine = f"{TEMPORARY_NAMES}:{place_of(self.state)}-"
        for stored in engine.named(TEMPORARY_NAMES):
            for name in stored.tags:
                if name.startswith(mine):
                    why = "temporary name of a build that was killed"
                    yield Garbage(kind, name, why, partial(engine.untag, name), image="")
        for note in sorted(note_of(self.state, engine, "*").parent.glob("*.json")):
            why = "temporary tag of a push that was killed"
            remove, since = partial(remove_left_tag, engine, note), int(note.stat().st_mtime)
            yield Garbage(kind, note.stem, why, remove, since=since, image=note.stem)

    def _images(self, engine: Engine) -> Iterator[Garbage]:
        known = ReportStore(self.state / "reports").was_to_test
        for image in engine.images(NAME):
            names, name = own_names(image), folder_name(image.labels[NAME])
            family = image.labels.get(REPOSITORY, "").removeprefix(STANDIN_HOST)
            foreign = self.repository not in {None, family}
            # One with tags of others only is theirs now; an untagged one may await its tests.
            if (image.tags and not names) or not has_own_labels(image):
                continue
            if not self.elsewhere and (foreign or not (names or known(image.id))):
                continue
            kind, why = CleanupKind.UNTAGGED, "without a tag: it did not pass its tests"
            if names:
                kind, why = CleanupKind.IMAGES, "tagged by imgbuild"
            shown = ", ".join(names) or f"{short_id(image.id)} ({name})"
            remove = partial(_remove_image, engine, image.id, names)
            yield Garbage(kind, shown, why, remove, image.size, image=name)
        for base in engine.named(BASE_REPOSITORY):
            tags = [tag for tag in base.tags if tag.startswith(f"{BASE_REPOSITORY}:")]
            # The name of one that imgbuild made ends with its own id.
            if any(tag.endswith(f"-{short_id(base.id)}") for tag in tags):
                why = "base image; made again when needed"
                remove = partial(_remove_image, engine, base.id, tags)
                yield Garbage(CleanupKind.IMAGES, ", ".join(tags), why, remove, base.size, image="")

    def _work(self) -> Iterator[Garbage]:
        """Yield the folders that killed processes left, and, as one, the old logs."""
        half_made = [
            path
            for path in self.cache.glob("*/.*.tmp-*")
            if not is_locked(path.with_name(f"{path.name.rpartition('.tmp-')[0]}.lock"))
        ]
        for path in sorted({*abandoned_work(self.state / "work"), *half_made, *_scratch()}):
            yield _paths(str(path), "its process was killed", [path])
        logs = (self.state / "logs").glob("*.log")
        if old := [path for path in logs if path.stat().st_mtime < time.time() - OLD]:
            name = f"{counted(len(old), 'log')} in {old[0].parent}"
            yield _paths(name, "older than 30 days", old)


def _paths(name: str, why: str, paths: Sequence[Path]) -> Garbage:
    def remove() -> bool:
        for path in paths:
            remove_tree(path)
        return not any(path.exists() for path in paths)

    since = int(min(path.lstat().st_mtime for path in paths))
    return Garbage(CleanupKind.WORK, name, why, remove, sum(map(_disk_size, paths)), since)


def _disk_size(path: Path) -> int:
    """Return the bytes that ``path`` and all below it take; a file with two names counts once."""
    found: dict[tuple[int, int], int] = {}
    with suppress(OSError):  # it went meanwhile
        for one in (path, *path.rglob("*")):
            status = one.lstat()
            found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def _scratch() -> Iterator[Path]:
    for parent in {Path("/dev/shm"), Path(tempfile.gettempdir())}:  # noqa: S108 (looked at only)
        for path in parent.glob(f"imgbuild-{os.getuid()}-*"):
            status = path.lstat()
            ours = status.st_uid == os.getuid() and _SCRATCH.fullmatch(path.name)
            if ours and status.st_mtime < time.time() - LONG:
                yield path


def _remove_image(engine: Engine, image_id: str, tags: Sequence[str]) -> bool:
    """Remove the tags, and the image where no other tag is left."""
    if engine.in_use(image_id):
        return False
    for tag in tags:
        engine.untag(tag)
    # Under another's tag, or below an image that somebody built on it, its layers stay.
    return engine.discard(image_id) or bool(tags)
