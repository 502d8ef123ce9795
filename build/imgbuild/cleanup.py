"""Find and remove what imgbuild leaves on this machine: images, build cache, killed runs."""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from imgbuild.build.context import image_locks
from imgbuild.dockerfile.labels import NAME
from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.errors import ImgbuildError
from imgbuild.files import abandoned_work, is_locked, lock_owner, remove_tree
from imgbuild.inputs.oci_layout import REPOSITORY as BASE_REPOSITORY
from imgbuild.inputs.oci_layout import short_id
from imgbuild.plan.plan import is_own, own_names
from imgbuild.publish.upload import note_of, remove_left_tag
from imgbuild.suites.container import CONTAINER_LABEL, place_of
from imgbuild.suites.results import ReportStore

#: How long logs are kept, in seconds.
OLD = 30 * 24 * 3600
#: The longest that mmdebstrap works, in seconds: the name of its folder has no process id.
LONG = 3600
#: A folder of `scratch_folder` for a base image: user id, image, digest of its recipe, 8 at random.
_SCRATCH = re.compile(r"imgbuild-[0-9]+-[a-z0-9.-]+-[0-9a-f]{12}-[a-z0-9_]{8}")


class CleanupKind(StrEnum):
    """What can be removed."""

    LEFTOVERS = "leftovers"
    UNTAGGED = "untagged"
    WORK = "work"
    IMAGES = "images"
    BUILD_CACHE = "build-cache"


#: What is removed by default.
DEFAULT = frozenset({CleanupKind.LEFTOVERS, CleanupKind.UNTAGGED, CleanupKind.WORK})


@dataclass(frozen=True)
class Garbage:
    """Something that imgbuild made. ``size`` is in bytes, ``since`` in seconds since 1970, or 0.

    ``remove`` returns False where somebody has begun to use it. ``kept`` is why it must stay, if it
    must. ``image`` is the image of the matrix whose lock removing it needs.
    """

    kind: CleanupKind
    name: str
    why: str
    remove: Callable[[], object] = field(repr=False, compare=False)
    size: int = 0
    since: int = 0
    kept: str | None = None
    image: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what ``clean --json`` prints of it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "why": self.why,
            "size": self.size,
            "since": self.since or None,
            "kept": self.kept,
        }


@dataclass(frozen=True)
class Cleanup:
    """Where to look: an engine, if one answers, and this user's state and cache folders.

    ``elsewhere`` includes what other state folders left on the engine, whose locks are not visible.
    """

    engine: Engine | None
    host: str | None
    state: Path
    cache: Path
    elsewhere: bool = False

    def find(self) -> tuple[Garbage, ...]:
        """Return all that can be removed, in the order of removing."""
        return tuple(self._found())

    def remove(self, findings: Iterable[Garbage]) -> Iterator[Garbage]:
        """Remove the findings and yield each as it then is: ``kept`` says why it is still there."""
        for finding in findings:
            kept = finding.kept or self._removed(finding)
            yield replace(finding, kept=kept)

    def _found(self) -> Iterator[Garbage]:
        if self.engine:
            yield from self._leftovers(self.engine)
            yield from self._pushed_tags(self.engine)
            yield from self._images(self.engine)
            if sizes := self.engine.build_cache():
                why = "of every project on this engine; the next builds start from nothing"
                remove, size = self.engine.empty_build_cache, sum(sizes)
                yield Garbage(CleanupKind.BUILD_CACHE, f"{len(sizes)} records", why, remove, size)
        yield from self._work()

    def _removed(self, finding: Garbage) -> str | None:
        """Return why it could not be removed, or None."""
        try:
            with ExitStack() as stack:
                if finding.image:
                    locks = self.state / "locks"
                    stack.enter_context(image_locks([finding.image], self.host, locks))
                return "it is in use" if finding.remove() is False else None
        except (ImgbuildError, OSError) as error:
            return str(error)

    def _busy(self, image: str = "") -> str | None:
        """Return why something of an image, or of any, must stay: a process holds its lock."""
        for lock in sorted((self.state / "locks").glob(f"*-{image}.lock" if image else "*.lock")):
            if is_locked(lock):
                return f"process {lock_owner(lock)} is at work on it"
        return None

    def _leftovers(self, engine: Engine) -> Iterator[Garbage]:
        """Yield containers, then networks, of test runs that were killed."""
        for container in engine.containers(CONTAINER_LABEL):
            remove = partial(engine.remove_container, container.id)
            yield from self._of_test(container.id, container.labels, remove, container.created)
        for network in engine.networks(CONTAINER_LABEL):
            remove = partial(engine.remove_network, network.id)
            yield from self._of_test(network.id, network.labels, remove)

    def _of_test(
        self, identity: str, labels: Mapping[str, str], remove: Callable[[], object], since: int = 0
    ) -> Iterator[Garbage]:
        image, _, place = labels[CONTAINER_LABEL].rpartition("@")
        why = f"of a test of {image}"
        if place == place_of(self.state):
            kept = self._busy(image)
            yield Garbage(
                CleanupKind.LEFTOVERS,
                identity[:12],
                why,
                remove,
                since=since,
                kept=kept,
                image=image,
            )
        elif self.elsewhere:
            why = f"{why}, by another state folder ({place})"
            yield Garbage(CleanupKind.LEFTOVERS, identity[:12], why, remove, since=since)

    def _pushed_tags(self, engine: Engine) -> Iterator[Garbage]:
        """Yield the temporary tags that killed pushes left."""
        for note in sorted(note_of(self.state, engine, "*").parent.glob("*.json")):
            image = note.stem
            yield Garbage(
                *(CleanupKind.LEFTOVERS, image, "temporary tag of a push that was killed"),
                partial(remove_left_tag, engine, note),
                since=int(note.stat().st_mtime),
                kept=self._busy(image),
                image=image,
            )

    def _images(self, engine: Engine) -> Iterator[Garbage]:
        known = ReportStore(self.state / "reports").knows
        for image in engine.images(NAME):
            names = own_names(image)
            # One with tags of others only is theirs now; an untagged one may await its tests.
            if (image.tags and not names) or not is_own(image, engine.history):
                continue
            if not names and not known(image.id) and not self.elsewhere:
                continue
            name = image.labels[NAME]
            shown = ", ".join(names) or f"{short_id(image.id)} ({name})"
            why = "tagged by imgbuild" if names else "without a tag: it did not pass its tests"
            kind, remove = (
                CleanupKind.IMAGES if names else CleanupKind.UNTAGGED,
                _remover(engine, image, names),
            )
            kept = self._busy(name)
            yield Garbage(kind, shown, why, remove, image.size, kept=kept, image=name)
        for base in filter(_is_own_base, engine.named(BASE_REPOSITORY)):
            tags = [tag for tag in base.tags if tag.rpartition(":")[0] == BASE_REPOSITORY]
            why = "base image; made again when needed"
            remove = _remover(engine, base, tags)
            yield Garbage(
                CleanupKind.IMAGES, ", ".join(tags), why, remove, base.size, kept=self._busy()
            )

    def _work(self) -> Iterator[Garbage]:
        """Yield the folders that killed processes left, and, as one, the old logs."""
        half_made = [
            path
            for path in self.cache.glob("*/.*.tmp-*")
            if not is_locked(path.with_name(f"{path.name.rpartition('.tmp-')[0]}.lock"))
        ]
        for path in sorted({*abandoned_work(self.state / "work"), *half_made, *_scratch()}):
            remove = partial(_remove_folder, path)
            since = int(path.lstat().st_mtime)
            yield Garbage(
                CleanupKind.WORK,
                str(path),
                "its process was killed",
                remove,
                disk_size(path),
                since,
            )
        logs = [
            path
            for path in (self.state / "logs").glob("*.log")
            if path.stat().st_mtime < time.time() - OLD
        ]
        if logs:
            size, since = sum(map(disk_size, logs)), int(min(one.stat().st_mtime for one in logs))
            name = f"{len(logs)} logs in {logs[0].parent}"
            act = partial(_remove_files, logs)
            yield Garbage(CleanupKind.WORK, name, "older than 30 days", act, size, since)


def disk_size(path: Path) -> int:
    """Return the bytes that ``path`` and all below it take; a file with two names counts once."""
    found: dict[tuple[int, int], int] = {}
    for folder, _, files in os.walk(path) if path.is_dir() else [(path.parent, (), (path.name,))]:
        for name in files:
            try:
                status = (Path(folder) / name).lstat()
            except OSError:  # it went meanwhile
                continue
            found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def _scratch() -> Iterator[Path]:
    for parent in {Path("/dev/shm"), Path(tempfile.gettempdir())}:  # noqa: S108 (looked at only)
        for path in parent.glob(f"imgbuild-{os.getuid()}-*"):
            status = path.lstat()
            ours = status.st_uid == os.getuid() and _SCRATCH.fullmatch(path.name)
            if ours and status.st_mtime < time.time() - LONG:
                yield path


def _is_own_base(image: StoredImage) -> bool:
    """Return whether imgbuild made the base image: its own name ends with its own id."""
    ending = f"-{short_id(image.id)}"
    return any(t.startswith(f"{BASE_REPOSITORY}:") and t.endswith(ending) for t in image.tags)


def _remover(engine: Engine, image: StoredImage, names: Sequence[str]) -> Callable[[], bool]:
    """Return what removes the tags, and the image where no other tag is left."""

    def remove() -> bool:
        if engine.in_use(image.id):
            return False
        for name in names:
            engine.untag(name)
        # Under another's tag, or below an image that somebody built on it, its layers stay.
        return engine.discard(image.id) or bool(names)

    return remove


def _remove_folder(path: Path) -> bool:
    remove_tree(path)
    return not path.exists()


def _remove_files(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
